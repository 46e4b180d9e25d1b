"""The advantage of each step inside its group of one level.

Shapes: N steps in group order.
"""

from __future__ import annotations

from hgpo.columns import IntArray
from hgpo.estimators.advantages import Level
from hgpo.estimators.normalise import (
    Compared,
    GroupStatistics,
    Normalisation,
    group_statistics,
    leave_one_out,
    normalised,
)
from hgpo.grouping import Runs, StepGroups


def step_level(
    k: int,
    groups: StepGroups,
    compared: Compared,
    how: Normalisation,
    batch_trajectory: IntArray | None = None,
    statistics: GroupStatistics | None = None,
) -> Level:
    """Level k of a batch, weight 1.

        A_k = c * (R - mean(G_k)) / F,  F = std(G_k) + epsilon or 1,  c = 1 or n / (n - 1) for "leave_one_out"

    0 for a step alone in its group or without a group at this level.

    Args:
        k: the level.
        groups: the hierarchy.
        compared: R, in group order.
        how: what it is compared with, and F.
        batch_trajectory: the batch's trajectory column, see `Level`.
        statistics: of R in the groups, where its deviations are others than R - mean(G_k).
    """
    runs, present_N = Runs.from_starts(groups.starts[k]), groups.present[k]
    statistics = statistics or group_statistics(compared, runs, how.ddof)
    factor_G = leave_one_out(statistics.count_G) if how.baseline == "leave_one_out" else None
    advantage_N = normalised(statistics, runs, how, factor_G)
    used_N = (statistics.count_G > 1.0)[runs.run_N]
    if present_N is not None:
        advantage_N = advantage_N * present_N
        used_N &= present_N
    return Level(
        k=k,
        row_N=groups.row_N,
        starts_N=groups.starts[k],
        compared=compared,
        ddof=how.ddof,
        advantage_N=advantage_N,
        weight_N=1.0,
        used_N=used_N,
        present_N=present_N,
        batch_trajectory=batch_trajectory,
    )
