"""Pooled weights: each level's weight from variance components, estimated by the method of moments.

    b_0 = m_0                                    mean of G_0
    b_k = lambda_k m_k + (1 - lambda_k) b_{k-1}  partial pooling down the nested groups
    lambda_k = n_k / (n_k + sigma_k^2 / tau_k^2)
    A = R - b_K = sum_k w_k (R - m_k),  w_k = lambda_k prod_{l > k} (1 - lambda_l),  lambda_0 = 1

m_k and n_k are mean and size of the step's level-k group. If the group is small, or the groups of the level differ
little, b_k stays close to b_{k-1}. These are the weights of HGPO (arXiv 2602.22817) with (k + 1)^alpha replaced by
estimates from the returns.

Model: R_i = mean of the level-0 group + u_1 + ... + u_K + e, where u_k is the effect of belonging to one level-k group
rather than to another with the same parent, with variance tau_k^2, and e is the rest, with variance sigma_k^2 inside
the groups of level k.

Shapes: N steps in group order, G level-0 groups, S states, C parts of a partition, K + 1 levels. Source: Searle,
Casella & McCulloch, Variance Components, 1992, chapter 5 (analysis-of-variance estimators for unbalanced nested data).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators.base import Level
from hgpo.estimators.levels import Normalisation, inverse_scale, step_level
from hgpo.grouping import RELATIVE_TOLERANCE, GroupedValues, Runs, StepGroups, group_statistics
from hgpo.steps import StepBatch

PRIOR_STEPS = 8.0
"""The batch's estimate is added to each state's moments with the weight of this many steps: most states have too few
steps for a separate estimate."""

_LEAST = 0.5
"""Least degrees of freedom, and least divisor of tau^2. Degrees of freedom are integers, and a parent with two groups
adds at least 1 to the divisor, so a smaller value is the rounding error of a sum that is 0."""

_ROUNDING = 1e-9
"""A difference of two sums up to this share of the first sum is a rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Group size and deviation from the group's mean of each step, for one level.

    Attributes:
        count_N: float64[N], members of the step's group.
        deviation_N: float64[N], return minus the group's mean.

    Example: returns 1, 3 | 5 in two groups: count_N [2, 2, 1], deviation_N [-1, 1, 0].
    """

    count_N: FloatArray
    deviation_N: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A partition of the steps, into groups or into cells.

    Attributes:
        part_N: int64[N], the part of each step.
        count_N: float64[N], number of steps in that part.

    Example: three steps of one group, two of which took the same action: part_N [0, 0, 1], count_N [2, 2, 1].
    """

    part_N: IntArray
    count_N: FloatArray

    @classmethod
    def of(cls, part_N: IntArray) -> Partition:
        """Count the members; parts are numbered from 0."""
        return cls(part_N, np.bincount(part_N).astype(np.float64)[part_N])

    def means(self, value_N: FloatArray) -> FloatArray:
        """Mean of each step's part, float64[N]."""
        sum_C: FloatArray = np.bincount(self.part_N, weights=value_N).astype(np.float64, copy=False)
        return sum_C[self.part_N] / self.count_N

    def spread(self, value_N: FloatArray) -> Spread:
        """Deviations from the parts' means; rounding errors are set to 0."""
        deviation_N = value_N - self.means(value_N)
        deviation_N[np.abs(deviation_N) <= RELATIVE_TOLERANCE * np.abs(value_N).max()] = 0.0
        return Spread(self.count_N, deviation_N)


def action_cells(runs: Runs, action_N: IntArray) -> Partition:
    """Partition the steps by group and action; `action_N` is in group order."""
    pair_N = runs.run_N * (int(action_N.max()) + 1) + action_N
    return Partition.of(np.unique(pair_N, return_inverse=True)[1])


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The level-0 groups whose moments are summed: the steps of one task in one state.

    Attributes:
        start_G: int64[G], first entry of each in group order.
        task_G: int64[G], the task.
        state_G: int64[G], the observation.

    Example: two tasks that both pass the kitchen, 3 and 2 steps: start_G [0, 3], task_G [0, 1], state_G [7, 7].
    """

    start_G: IntArray
    task_G: IntArray
    state_G: IntArray

    @classmethod
    def of(cls, batch: StepBatch, groups: StepGroups) -> Blocks:
        """Blocks of a batch; states are its observations, equal ones count as one state across tasks."""
        start_G = np.flatnonzero(groups.starts[0])
        row_G = groups.row_N[start_G]
        return cls(start_G, batch.group[row_G], batch.observation[row_G])


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """Variances of one level, float64[G]: one pair for each block; units of the return squared.

    Attributes:
        within_G: sigma_k^2.
        between_G: tau_k^2.
        known_G: bool[G], whether they could be estimated: without a group of two members, both are 0.

    Example: groups with returns (0, 0), (2, 2) below one parent: within_G [0], between_G [2], known_G [True].
    """

    within_G: FloatArray
    between_G: FloatArray
    known_G: BoolArray


def variance_components(parent: Spread, child: Spread, blocks: Blocks, leave_task_out: bool = False) -> Components:
    """Estimate sigma^2 and tau^2 of the finer of two nested partitions for every block.

        sigma^2 = sum_i (R_i - m_c)^2 / sum_i (1 - 1/n_c)
        tau^2   = max(0, [sum_i (m_c - m_p)^2 - sigma^2 sum_i (1/n_c - 1/n_p)] / sum_i (1 - n_c/n_p))

    m and n are mean and size of step i's group, p the coarser (parent) and c the finer (child). The expectation of the
    first sum in tau^2 is sigma^2 times the second plus tau^2 times the third, so over the whole batch both are
    unbiased before the cut at 0. For one state the sums are taken over all tasks' steps there, and `PRIOR_STEPS` of
    the batch's estimate are added to each numerator and divisor.

    Args:
        parent: the coarser partition.
        child: the finer one.
        blocks: see `Blocks`.
        leave_task_out: estimate each block's pair only from the other tasks, so that it is independent of the block.
    """
    moments_G = [np.add.reduceat(term_N, blocks.start_G) for term_N in moment_terms(parent, child)]
    inside_G, freedom_G, across_G, across_freedom_G, divisor_G = (
        _batch_sum(moment_G, blocks, leave_task_out) for moment_G in moments_G
    )
    known_G = freedom_G > _LEAST
    within_G = np.where(known_G, inside_G / np.maximum(freedom_G, _LEAST), 0.0)
    excess_G = _difference(across_G, across_freedom_G * within_G)
    between_G = np.where(known_G, excess_G / np.maximum(divisor_G, _LEAST), 0.0)

    inside_G, freedom_G, across_G, across_freedom_G, divisor_G = (
        _state_sum(moment_G, blocks, leave_task_out) for moment_G in moments_G
    )
    within_G = (inside_G + PRIOR_STEPS * within_G) / (freedom_G + PRIOR_STEPS)
    excess_G = _difference(across_G + PRIOR_STEPS * between_G, across_freedom_G * within_G)
    between_G = np.where(known_G, excess_G / (divisor_G + PRIOR_STEPS), 0.0)
    return Components(within_G, between_G, known_G)


def moment_terms(parent: Spread, child: Spread) -> tuple[FloatArray, ...]:
    """Each step's terms of the five sums of `variance_components`, in their order there."""
    inverse_N = 1.0 / child.count_N
    return (
        child.deviation_N**2,
        1.0 - inverse_N,
        (parent.deviation_N - child.deviation_N) ** 2,
        inverse_N - 1.0 / parent.count_N,
        1.0 - child.count_N / parent.count_N,
    )


def shrinkage(count_N: FloatArray, between_N: FloatArray, within_N: FloatArray) -> FloatArray:
    """Weight n tau^2 / (n tau^2 + sigma^2) of a mean of n values against its parent's mean, float64[N]; 0 for 0/0."""
    signal_N = count_N * between_N
    total_N = signal_N + within_N
    share_N: FloatArray = signal_N / np.where(total_N > 0.0, total_N, 1.0)
    return share_N


def _batch_sum(moment_G: FloatArray, blocks: Blocks, leave_task_out: bool) -> FloatArray:
    """For each block the sum over the batch, or over the tasks it does not belong to, float64[G]."""
    if not leave_task_out:
        return np.full(len(moment_G), moment_G.sum())
    task_T: FloatArray = np.bincount(blocks.task_G, weights=moment_G).astype(np.float64, copy=False)
    return _difference(np.full(len(moment_G), task_T.sum()), task_T[blocks.task_G])


def _state_sum(moment_G: FloatArray, blocks: Blocks, leave_task_out: bool) -> FloatArray:
    """For each block the sum over all blocks of its state, or over its state's blocks in other tasks, float64[G]."""
    state_S: FloatArray = np.bincount(blocks.state_G, weights=moment_G).astype(np.float64, copy=False)
    sum_G = state_S[blocks.state_G]
    return _difference(sum_G, moment_G) if leave_task_out else sum_G


def _difference(whole_G: FloatArray, part_G: FloatArray) -> FloatArray:
    """Whole - part, at least 0, and exactly 0 if it is a rounding error, which would dominate a variance of 0."""
    rest_G = whole_G - part_G
    rest_G[rest_G <= _ROUNDING * whole_G] = 0.0
    return rest_G


def pooled_levels(
    batch: StepBatch, groups: StepGroups, compared: GroupedValues, norm: Normalisation
) -> tuple[Level, ...]:
    """Levels 0..K with pooled weights, which add up to 1 for every step.

    "leave_one_out" keeps a step's own return out of every mean, replaces n_k by n_k - 1, and takes the variances
    for a task from the other tasks: the baseline is then independent of the step's action, and with "mean_norm" the
    policy gradient unbiased. With one task there are no others, and only level 0 counts.

    "mean_std_norm" divides every level by the std of the step's level-0 group + epsilon: the levels are estimates of
    one baseline, so they must stay in one unit. The std includes the step's own return, so the divisor depends on the
    action with every baseline.

    Args:
        batch: the steps.
        groups: their hierarchy.
        compared: the step returns, in group order.
        norm: the baseline and the divisor.
    """
    left_out = norm.baseline == "leave_one_out"
    runs = [Runs.from_starts(starts_N) for starts_N in groups.starts]
    statistics = [group_statistics(compared, level_runs, norm.ddof) for level_runs in runs]
    scale_N = inverse_scale(statistics[0], norm)[runs[0].run_N]
    spreads = [
        Spread(level.count_G[level_runs.run_N], level.deviation_N)
        for level, level_runs in zip(statistics, runs, strict=True)
    ]
    weights = _weights(spreads, Blocks.of(batch, groups), groups.present, left_out)

    levels, undivided = [], replace(norm, mode="mean_norm")
    for k, weight_N in enumerate(weights):
        scaled = replace(statistics[k], deviation_N=statistics[k].deviation_N * scale_N)
        levels.append(step_level(k, groups, compared, undivided, scaled).weighted(weight_N))
    return tuple(levels)


def _weights(
    spreads: list[Spread], blocks: Blocks, present: tuple[BoolArray | None, ...], left_out: bool
) -> list[FloatArray]:
    """Weight of each level, K + 1 arrays float64[N]. A step without level k keeps its parent's baseline."""
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
