"""The episode level: a trajectory's whole score against the other trajectories of its task.

Shapes: N steps in group order (tasks are runs of neighbours), G tasks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators.advantages import Advantages, Level, weighted_sum
from hgpo.estimators.normalise import GroupStatistics, clear_rounding, group_statistics, normalised
from hgpo.grouping import Runs, changes
from hgpo.returns import discounted_returns, episode_magnitudes, episode_scores
from hgpo.steps import StepBatch

COUNTS = ("trajectory", "step")


def episode_advantages(
    batch: StepBatch, gamma: float, mode: str, count: str = "trajectory", baseline: str = "mean"
) -> Advantages:
    """Advantages of an estimator that has the episode level alone; see `episode_level` for the options."""
    row_N = np.argsort(batch.group, kind="stable")
    episode = episode_level(batch, row_N, changes(batch.group[row_N]), mode, count, baseline)
    return Advantages(values=weighted_sum((episode,)), returns=discounted_returns(batch, gamma), episode=episode)


def episode_level(
    batch: StepBatch, row_N: IntArray, starts_N: BoolArray, mode: str, count: str = "step", baseline: str = "mean"
) -> Level:
    """Episode advantage of each step, weight 1.

        A = (S - mean) / (std + 1e-6), S = sum of the trajectory's rewards - the step's own penalty

    mean and unbiased std are over the task. With count="step" every step counts once, so a long trajectory counts more
    (the published recipe). With count="trajectory" every trajectory counts once, shared equally by its steps: without
    penalties these are the mean and std over trajectories. "mean_norm" leaves the std out. A task with one trajectory
    has nothing to compare: 0.

    Args:
        batch: the steps. row_N: their rows by ascending group number. starts_N: True where another group begins.
        mode, count, baseline: see above; "leave_one_out" takes the mean over the other trajectories.
    """
    score_N = episode_scores(batch)[row_N]
    magnitude_N = episode_magnitudes(batch, row_N)
    tasks = Runs.from_starts(starts_N)
    share_N = None if count == "step" else 1.0 / np.diff(batch.trajectory_start)[batch.trajectory[row_N]]
    statistics = group_statistics(score_N, tasks, 1, share_N, magnitude_N)
    if baseline == "leave_one_out":
        deviation_N = _from_the_others(statistics, tasks, batch.trajectory[row_N], share_N)
        summed_N = score_N if magnitude_N is None else magnitude_N
        clear_rounding(deviation_N, summed_N, tasks, np.empty_like(deviation_N))
        statistics = replace(statistics, deviation_N=deviation_N)

    compared_G = np.bincount(batch.trajectory_group) > 1
    return Level(
        k=None,
        row_N=row_N,
        starts_N=starts_N,
        value_N=score_N,
        ddof=1,
        advantage_N=normalised(statistics, tasks, mode, factor_G=compared_G.astype(np.float64)),
        weight_N=1.0,
        used_N=compared_G[tasks.run_N],
        share_N=share_N,
        magnitude_N=magnitude_N,
        batch_trajectory=batch.trajectory,
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
