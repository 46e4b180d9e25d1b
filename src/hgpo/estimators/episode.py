"""The episode level: a trajectory's whole score against the other trajectories of its task.

Shapes: N steps in group order (tasks are runs of neighbours), G tasks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.advantages import Advantages, Level
from hgpo.estimators.normalise import (
    Compared,
    GroupStatistics,
    Normalisation,
    clear_rounding,
    group_statistics,
    normalised,
)
from hgpo.grouping import Runs, StepGroups, changes
from hgpo.returns import discounted_returns, episode_magnitudes, episode_scores
from hgpo.steps import StepBatch

COUNTS = ("trajectory", "step")


def episode_advantages(batch: StepBatch, gamma: float, how: Normalisation, count: str = "trajectory") -> Advantages:
    """Advantages of an estimator that has the episode level alone; see `episode_level` for `how` and `count`."""
    row_N = np.argsort(batch.group, kind="stable")
    tasks = StepGroups(row_N, changes(batch.group[row_N]), starts=(), present=())
    return Advantages.of(discounted_returns(batch, gamma), (episode_level(batch, tasks, how, count),))


def episode_level(batch: StepBatch, groups: StepGroups, how: Normalisation, count: str = "step") -> Level:
    """Episode advantage of each step, weight 1.

        A = (S - mean) / (std + 1e-6), S = sum of the trajectory's rewards - the step's own penalty

    mean and std are over the task. With count="step" every step counts once, so a long trajectory counts more (the
    published recipe). With count="trajectory" every trajectory counts once, shared equally by its steps: without
    penalties these are the mean and std over trajectories. A task with one trajectory has nothing to compare: 0.

    Args:
        batch: the steps.
        groups: their order, tasks side by side; groups inside the tasks are not looked at.
        how: what divides, and the mean: over all trajectories of the task or, with "leave_one_out", the others.
        count: see above.
    """
    row_N, tasks = groups.row_N, Runs.from_starts(groups.task_starts_N)
    share_N = None if count == "step" else 1.0 / np.diff(batch.trajectory_start)[batch.trajectory[row_N]]
    compared = Compared(episode_scores(batch)[row_N], episode_magnitudes(batch, row_N), share_N)
    statistics = group_statistics(compared, tasks, how.ddof)
    if how.baseline == "leave_one_out":
        deviation_N = _from_the_others(statistics, tasks, batch.trajectory[row_N], share_N)
        clear_rounding(deviation_N, compared.summed_N, tasks, np.empty_like(deviation_N))
        statistics = replace(statistics, deviation_N=deviation_N)

    compared_G = np.bincount(batch.trajectory_group) > 1
    return Level(
        k=None,
        row_N=row_N,
        starts_N=groups.task_starts_N,
        compared=compared,
        ddof=how.ddof,
        advantage_N=normalised(statistics, tasks, how, factor_G=compared_G.astype(np.float64)),
        weight_N=1.0,
        used_N=compared_G[tasks.run_N],
        batch_trajectory=batch.trajectory,
        name="whole trajectories of the task",
    )


def _from_the_others(
    statistics: GroupStatistics, tasks: Runs, trajectory_N: IntArray, share_N: FloatArray | None
) -> FloatArray:
    """Deviations from the mean over the other trajectories of the task instead of over all.

    mean of the others = mean - D / (n - c), D and c the sums of share * deviation and of shares in the own trajectory.
    """
    weighted_N = statistics.deviation_N if share_N is None else statistics.deviation_N * share_N
    own_M = np.bincount(trajectory_N, weights=weighted_N)
    counted_M = np.rint(np.bincount(trajectory_N, weights=share_N))
    others_N = statistics.count_G[tasks.run_N] - counted_M[trajectory_N]
    others_N[others_N == 0.0] = np.inf  # the only trajectory of its task
    deviation_N: FloatArray = statistics.deviation_N + own_M[trajectory_N] / others_N
    return deviation_N
