"""Figures of one partition of steps into groups: sizes, return variance explained, prompts.

Shapes: P steps in group order (the members of a group are neighbours), G groups, J tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.normalise import Compared, group_statistics
from hgpo.grouping import Runs, changes


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Groups of so many members (from a power of two up to the next), and the steps in them.

    Attributes:
        lowest: fewest members.
        highest: most members.
        groups: how many groups.
        steps: how many steps in them.
    """

    lowest: int
    highest: int
    groups: int
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class TaskSpread:
    """How far the returns of each task are apart.

    Attributes:
        squares_J: float64[J], sum of squared deviations from the task's mean.
        steps_J: int64[J], steps of the task.

    Example: returns 0, 2 of task 0 and 5 of task 1 have squares_J [2, 0] and steps_J [2, 1].
    """

    squares_J: FloatArray
    steps_J: IntArray

    @classmethod
    def of(cls, return_P: FloatArray, task_P: IntArray) -> TaskSpread:
        """Spread of returns in any order; tasks are numbered from 0, and one without steps has 0 of both."""
        order_P = np.argsort(task_P, kind="stable")
        task_P = task_P[order_P]
        deviation_P = group_statistics(Compared(return_P[order_P]), Runs.from_starts(changes(task_P)), 0).deviation_N
        squares_J = np.bincount(task_P, weights=deviation_P * deviation_P).astype(np.float64, copy=False)
        return cls(squares_J, np.bincount(task_P))


def variance_explained(
    return_P: FloatArray, task_P: IntArray, groups: Runs, tasks: TaskSpread
) -> tuple[float | None, float | None]:
    """Return 1 - W / T and 1 - W / E[W], see `LevelSummary`; None where the divisor is 0.

    Args:
        return_P: returns, the members of a group being neighbours.
        task_P: number of each one's task.
        groups: the groups, each inside one task.
        tasks: the spread of the same returns.

    Example: returns 0, 1 | 2, 3 in two groups of one task: T = 5, W = 1, E[W] = 5 * 2 / 3, so (0.8, 0.7).
    """
    deviation_P = group_statistics(Compared(return_P), groups, ddof=0).deviation_N
    within = float(np.sum(deviation_P * deviation_P))
    groups_J = np.bincount(task_P[groups.start_G], minlength=len(tasks.steps_J))
    total = float(np.sum(tasks.squares_J))
    share_left_J = (tasks.steps_J - groups_J) / np.maximum(tasks.steps_J - 1, 1)
    expected = float(np.sum(tasks.squares_J * share_left_J))
    return (
        max(1.0 - within / total, 0.0) if total > 0.0 else None,  # below 0 by rounding alone
        1.0 - within / expected if expected > 0.0 else None,
    )


def prompts_differ(prompt_P: IntArray, groups: Runs) -> tuple[float | None, float | None]:
    """Share of groups of two or more members with different prompts, by groups and by steps; None without such groups.

    Example: prompts 0, 0 | 0, 1, 1 | 2 in three groups give (1 / 2, 3 / 5).
    """
    size_G = groups.size_G
    shared_G = size_G > 1
    if not shared_G.any():
        return None, None
    other_P = prompt_P != prompt_P[groups.start_G][groups.run_N]
    differ_G = np.bincount(groups.run_N, weights=other_P) > 0.0
    steps = float(np.sum(size_G * differ_G)) / float(np.sum(size_G * shared_G))
    return float(np.sum(differ_G)) / float(np.sum(shared_G)), steps


def sizes_seen(size_G: IntArray, percents: tuple[int, ...]) -> list[int]:
    """Return, per percentage, the smallest group size that at least so many percent of the steps do not exceed.

    Example: groups of 1, 1 and 4 members: a sixth of the steps each in the first two, so 10 % see 1 and 50 % see 4.
    """
    size_G = np.sort(size_G)
    steps_G = np.cumsum(size_G)
    ranks = [-(-int(steps_G[-1]) * percent // 100) for percent in percents]
    return [int(size) for size in size_G[np.searchsorted(steps_G, ranks)]]


def size_histogram(size_G: IntArray) -> tuple[SizeBin, ...]:
    """Groups by size in bins 1, 2-3, 4-7, …, up to the bin of the largest, bins without groups included."""
    exponent_G = np.frexp(size_G.astype(np.float64))[1] - 1  # floor of the base-2 logarithm, exactly
    groups = np.bincount(exponent_G)
    steps = np.bincount(exponent_G, weights=size_G)
    return tuple(
        SizeBin(2**exponent, 2 ** (exponent + 1) - 1, int(groups[exponent]), int(steps[exponent]))
        for exponent in range(len(groups))
    )
