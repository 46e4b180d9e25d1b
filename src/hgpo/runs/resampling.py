"""Dynamic sampling: which groups of an update say nothing, and what is left out once others were drawn for them.

A group whose rollouts all earned the same gives a group estimator nothing to compare (DAPO, arXiv:2503.14476, draws
such groups anew).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hgpo.rollout.records import StepRecord, outcomes


@dataclass(frozen=True, slots=True)
class Exchange:
    """What to do with an update's groups and those that were drawn for its uniform ones.

    Example: of the groups a, b and c the last two are uniform; d and e are drawn for them, and e is uniform too. Then
    d takes the place of b: `Exchange(leaving=frozenset({"b", "e"}), replaced=1)`.

    Attributes:
        leaving: Names of the groups that are left out, of both kinds; as many stay as there were.
        replaced: How many of the update's groups made way for others.
    """

    leaving: frozenset[str]
    replaced: int


def uniform_groups(steps: Sequence[StepRecord]) -> set[str]:
    """Names of the groups of two or more whose rollouts all earned the same total reward."""
    played = outcomes(steps)
    totals: dict[str, set[float]] = {}
    for episode in played:
        totals.setdefault(episode.group, set()).add(round(episode.total_reward, 9))
    sizes = Counter(episode.group for episode in played)
    return {group for group, values in totals.items() if len(values) == 1 and sizes[group] > 1}


def exchange_uniform(steps: Sequence[StepRecord], fresh: Sequence[StepRecord]) -> Exchange:
    """Let every group of `fresh` that is not uniform take the place of a uniform one of `steps`, in order of names.

    Args:
        steps: The update's, as they stand.
        fresh: Steps of at most as many other groups as `steps` has uniform ones.
    """
    drawn = {record.group for record in fresh}
    useful = drawn - uniform_groups(fresh)
    making_way = sorted(uniform_groups(steps))[: len(useful)]
    return Exchange(frozenset({*making_way, *(drawn - useful)}), len(useful))
