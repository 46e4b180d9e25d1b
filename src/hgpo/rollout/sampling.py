"""The order of the training tasks, and dynamic sampling.

Training passes over the split repeatedly, in a new random order each time. If all rollouts of a group have equal total
rewards, GRPO's advantages are 0 without penalties; DAPO (arXiv 2503.14476) replaces such groups by new ones. Estimators
that compare discounted returns of steps can have other advantages in these groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hgpo.rollout.records import StepRecord, by_trajectory


def task_indices(seed: int, tasks: int, start: int, count: int) -> list[int]:
    """Indices of the tasks that training draws, from draw `start` on, in the random order that `seed` determines.

    A pure function of its arguments, so a resumed run needs to remember only how many draws were made. Within one
    pass over the split no task comes twice.

    Example: `task_indices(0, 3, 0, 6)` is two permutations of 0, 1, 2 one after the other.
    """
    if tasks < 1:
        raise ValueError("the training split has no tasks")
    drawn: list[int] = []
    while len(drawn) < count:
        epoch, offset = divmod(start + len(drawn), tasks)
        order = np.random.default_rng([seed, epoch]).permutation(tasks)
        drawn += order[offset : offset + count - len(drawn)].tolist()
    return drawn


def equal_reward_groups(steps: Sequence[StepRecord]) -> set[str]:
    """Names of the groups of two or more whose rollouts all earned the same total reward."""
    totals: defaultdict[str, list[float]] = defaultdict(list)
    for trajectory in by_trajectory(steps):
        totals[trajectory[0].group].append(round(sum(step.reward for step in trajectory), 9))
    return {group for group, earned in totals.items() if len(earned) > 1 and len(set(earned)) == 1}


def replace_equal_reward_groups(steps: Sequence[StepRecord], fresh: Sequence[StepRecord]) -> tuple[set[str], int]:
    """Replace groups of `steps` with equal rewards by groups of `fresh` with unequal ones, one for one by name.

    Args:
        steps: steps of the update.
        fresh: steps of at most as many other groups as `steps` has groups with equal rewards.

    Returns:
        The names of the groups that are left out, old and new ones, and the number of old ones among them. The number
        of groups stays the same.

    Example: the rewards in b are equal, and those in c, but not those in a; d and e are drawn for b and c, and only
    those in d are unequal. Then d replaces b: `({"b", "e"}, 1)`.
    """
    drawn = {record.group for record in fresh}
    useful = drawn - equal_reward_groups(fresh)
    replaced = sorted(equal_reward_groups(steps))[: len(useful)]
    return {*replaced, *(drawn - useful)}, len(useful)
