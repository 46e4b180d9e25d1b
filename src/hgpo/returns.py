"""Discounted step returns of all trajectories at once.

Shapes: N steps, M trajectories. Arrays suffixed _N are in time order: whole trajectories, one after the other.
"""

from __future__ import annotations

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.steps import StepBatch


def check_gamma(gamma: object) -> float:
    """Return the discount as a float.

    Raises:
        ValueError: gamma is not a number in [0, 1].
    """
    if isinstance(gamma, (int, float, np.integer, np.floating)) and not isinstance(gamma, bool) and 0 <= gamma <= 1:
        return float(gamma)
    raise ValueError(f"gamma must be a number from 0 to 1, got {gamma!r}")


def discounted_returns(batch: StepBatch, gamma: float) -> FloatArray:
    """Return of every step minus its own penalty, float64[N] in the batch's row order, units of the reward.

        R_t = sum_{j=t}^{T-1} gamma^(j-t) r_j - penalty_t

    The penalty, which is the published recipe's, does not affect earlier steps; arXiv 2602.22817 §3 has the sum. Steps
    with the same penalty and the same rewards up to the end have bit-identical returns, wherever they are in the batch.

    Raises:
        ValueError: gamma outside [0, 1].
    """
    return_N = unpenalised_returns(batch, gamma)
    return_N -= batch.penalty
    return return_N


def unpenalised_returns(batch: StepBatch, gamma: float) -> FloatArray:
    """Return of every step without penalties, sum_{j=t}^{T-1} gamma^(j-t) r_j, float64[N] in the batch's row order.

    Raises:
        ValueError: gamma outside [0, 1].
    """
    return_N = np.empty(len(batch))
    reward_N = batch.reward[batch.order]
    return_N[batch.order] = discounted_suffix_sums(reward_N, batch.trajectory_start, check_gamma(gamma))
    return return_N


def discounted_suffix_sums(reward_N: FloatArray, start_M1: IntArray, factor: float) -> FloatArray:
    """Return S_t = r_t + factor * S_{t+1} inside each of M consecutive segments, float64[N].

    Computed by doubling: after round j an entry is the sum over its next 2^j rewards, and round j + 1 adds the entry
    2^j places further on. This takes N log2(longest segment) operations and no Python loop over steps. The additions
    for an entry depend only on the rewards from there to the end of its segment.

    Args:
        reward_N: the values to sum, segments one after the other.
        start_M1: segment m is `reward_N[start_M1[m]:start_M1[m + 1]]`.
        factor: the discount per step, in [0, 1].
    """
    length_M = np.diff(start_M1)
    ends_N = np.repeat(start_M1[1:], length_M)
    remaining_N = ends_N - np.arange(len(reward_N))
    sum_N = reward_N.copy()
    reach, power = 1, factor
    while reach < int(length_M.max()) and power > 0.0:
        further_N = sum_N[reach:] * power
        further_N *= remaining_N[:-reach] > reach
        sum_N[:-reach] += further_N
        reach, power = reach * 2, power * power
    return sum_N


def discounted_errors(batch: StepBatch, gamma: float, error_lambda: float) -> FloatArray:
    """Discounted sums of the temporal-difference errors of a critic's values, float64[N] in the batch's row order.

        E_t = delta_t + gamma lambda E_{t+1},   delta_t = r_t + gamma V_{t+1} - V_t

    V after a trajectory's last step is `batch.bootstrap` of that step, which is 0 if the step ended the episode.
    Penalties are left out. With lambda = 1, E_t is the discounted return plus the discounted bootstrap, minus V_t.
    Source: arXiv 1506.02438, equation 16.
    """
    assert batch.value is not None, "`Estimator.needs` asks for it"
    value_N = batch.value[batch.order]
    next_value_N = np.append(value_N[1:], 0.0)
    last_M = batch.trajectory_start[1:] - 1
    next_value_N[last_M] = batch.bootstrap[batch.order][last_M]
    error_N = np.empty(len(batch))
    error_N[batch.order] = discounted_suffix_sums(
        batch.reward[batch.order] + check_gamma(gamma) * next_value_N - value_N,
        batch.trajectory_start,
        gamma * float(error_lambda),
    )
    return error_N


def discounted_magnitudes(batch: StepBatch, gamma: float, row_N: IntArray) -> FloatArray | None:
    """Magnitude of a return's terms: sum_{j>=t} gamma^(j-t) |r_j| + |penalty_t|, float64[N], for the rows `row_N`.

    The rounding error of a return is proportional to this sum and not to the return, which terms of both signs can
    bring close to 0. None if all terms have one sign: the sum is then the magnitude of the return.
    """
    if not _signs_differ(batch):
        return None
    sum_N = discounted_suffix_sums(np.abs(batch.reward[batch.order]), batch.trajectory_start, check_gamma(gamma))
    magnitude_N = np.abs(batch.penalty)
    magnitude_N[batch.order] += sum_N
    return magnitude_N[row_N]


def episode_returns(batch: StepBatch) -> FloatArray:
    """Undiscounted sum of rewards of every step's trajectory minus the step's own penalty, float64[N] in row order.

    All steps of a trajectory share the sum; only penalised steps differ from it.
    """
    return_N: FloatArray = total_rewards(batch)[batch.trajectory] - batch.penalty
    return return_N


def episode_magnitudes(batch: StepBatch, row_N: IntArray) -> FloatArray | None:
    """Sum of the magnitudes of an `episode_returns` entry's terms, float64[N], as in `discounted_magnitudes`."""
    if not _signs_differ(batch):
        return None
    magnitude_N: FloatArray = total_magnitudes(batch)[batch.trajectory] + np.abs(batch.penalty)
    return magnitude_N[row_N]


def total_rewards(batch: StepBatch) -> FloatArray:
    """Undiscounted sum of the rewards of each trajectory, without penalties, float64[M]."""
    total_M: FloatArray = np.add.reduceat(batch.reward[batch.order], batch.trajectory_start[:-1])
    return total_M


def total_magnitudes(batch: StepBatch) -> FloatArray:
    """Sum of the magnitudes of each trajectory's rewards, float64[M]."""
    total_M: FloatArray = np.add.reduceat(np.abs(batch.reward[batch.order]), batch.trajectory_start[:-1])
    return total_M


def largest_magnitudes(batch: StepBatch) -> FloatArray:
    """Largest `total_magnitudes` of a trajectory of each step's task, float64[N]: the scale of rounding errors."""
    largest_G = np.zeros(int(batch.group.max()) + 1)
    np.maximum.at(largest_G, batch.trajectory_group, total_magnitudes(batch))
    return largest_G[batch.group]


def _signs_differ(batch: StepBatch) -> bool:
    return bool(batch.penalty.any() or batch.reward.min() < 0.0 < batch.reward.max())
