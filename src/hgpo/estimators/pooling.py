"""Weights that the batch itself decides: a level's mean is trusted as far as it is known and as far as levels differ.

    b_0 = m_0                                    mean of G_0
    b_k = lambda_k m_k + (1 - lambda_k) b_{k-1}  partial pooling down the nested groups
    lambda_k = n_k / (n_k + sigma_k^2 / tau_k^2)
    A = R - b_K = sum_k w_k (R - m_k),  w_k = lambda_k prod_{l > k} (1 - lambda_l),  lambda_0 = 1

m_k and n_k are mean and size of the step's level-k group; sigma_k^2 and tau_k^2 come from the batch
(`variance_components`). A small group, or a level whose groups hardly differ, leaves the baseline to its parent. These
are the weights of HGPO (arXiv 2602.22817) with (k + 1)^alpha replaced by what the returns say.

Shapes: N steps in group order, K + 1 levels.
"""

from __future__ import annotations

import numpy as np

from hgpo.columns import BoolArray, FloatArray
from hgpo.estimators.advantages import Level
from hgpo.estimators.normalise import (
    Compared,
    GroupStatistics,
    Normalisation,
    group_statistics,
    inverse_std,
    leave_one_out,
)
from hgpo.estimators.variance_components import Blocks, Spread, shrinkage, variance_components
from hgpo.grouping import Runs, StepGroups
from hgpo.steps import StepBatch


def pooled_levels(batch: StepBatch, groups: StepGroups, compared: Compared, how: Normalisation) -> tuple[Level, ...]:
    """Levels 0..K with pooled weights, which add up to 1 for every step.

    "leave_one_out" keeps a step's own return out of every mean, puts n_k - 1 in place of n_k, and takes the variances
    for a task from the other tasks: the baseline is then independent of the step's action, and with "mean_norm" the
    policy gradient unbiased. With one task there are no others, and level 0 alone counts.

    "mean_std_norm" divides every level by the std of the step's level-0 group + epsilon: the levels are estimates of
    one baseline, so they must stay in one unit. A std holds the step's own return, so what divides depends on the
    action, whatever the baseline.

    Args:
        batch: the steps.
        groups: their hierarchy.
        compared: the step returns, in group order.
        how: the baseline, and what divides.
    """
    left_out = how.baseline == "leave_one_out"
    runs = [Runs.from_starts(starts_N) for starts_N in groups.starts]
    statistics = [group_statistics(compared, level_runs, how.ddof) for level_runs in runs]
    scale_N = normalising_scale(statistics[0], runs[0], how)
    spreads = [
        Spread(level.count_G[level_runs.run_N], level.deviation_N)
        for level, level_runs in zip(statistics, runs, strict=True)
    ]

    levels = []
    for k, weight_N in enumerate(_weights(spreads, Blocks.of(batch, groups), groups.present, left_out)):
        advantage_N = spreads[k].deviation_N * scale_N
        if left_out:
            advantage_N *= leave_one_out(spreads[k].count_N)
        used_N = spreads[k].count_N > 1.0
        if (present_N := groups.present[k]) is not None:
            advantage_N *= present_N
            used_N &= present_N
        levels.append(
            Level(
                k=k,
                row_N=groups.row_N,
                starts_N=groups.starts[k],
                compared=compared,
                ddof=how.ddof,
                advantage_N=advantage_N,
                weight_N=weight_N,
                used_N=used_N,
                present_N=present_N,
                batch_trajectory=batch.trajectory,
            )
        )
    return tuple(levels)


def normalising_scale(statistics: GroupStatistics, runs: Runs, how: Normalisation) -> FloatArray:
    """What every level of a step is multiplied by: 1 / (std of its level-0 group + epsilon), or 1; float64[N]."""
    if how.mode == "mean_norm":
        return np.ones(len(runs.run_N))
    scale_N: FloatArray = inverse_std(statistics, how.epsilon)[runs.run_N]
    return scale_N


def _weights(
    spreads: list[Spread], blocks: Blocks, present: tuple[BoolArray | None, ...], left_out: bool
) -> list[FloatArray]:
    """Weight of each level, K + 1 arrays float64[N]. A step without a level k passes its parent's baseline on."""
    count = len(spreads[0].count_N)
    block_N = np.repeat(np.arange(len(blocks.start_G)), np.diff(np.append(blocks.start_G, count)))
    weights: list[FloatArray] = []
    rest_N = np.ones(count)
    for k in range(len(spreads) - 1, 0, -1):
        components = variance_components(spreads[k - 1], spreads[k], blocks, left_out)
        counted_N = spreads[k].count_N - 1.0 if left_out else spreads[k].count_N
        share_N = shrinkage(counted_N, components.between_G[block_N], components.within_G[block_N])
        if (present_N := present[k]) is not None:
            share_N *= present_N
        weights.insert(0, rest_N * share_N)
        rest_N = rest_N - weights[0]
    return [rest_N, *weights]
