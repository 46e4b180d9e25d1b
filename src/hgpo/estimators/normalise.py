"""Deviation of each value from its group's mean, and the group's spread: the arithmetic all group estimators share.

Shapes: N steps in group order (the members of a group are neighbours), G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray
from hgpo.grouping import Runs

MODES = ("mean_std_norm", "mean_norm")
BATCH_MODES = ("none", "batch_std")
BASELINES = ("mean", "leave_one_out")
EPSILON = 1e-6
"""Added to every standard deviation that divides (the published recipe's value), in the units of the return."""

RELATIVE_TOLERANCE = 1e-12
"""A deviation of at most this times the group's largest magnitude is rounding and counts as exactly 0.

Summing T rewards in float64 is off by at most T * 1.1e-16 of the sum of their magnitudes, so two returns that are equal
on paper differ by less than 1e-12 of that for episodes of several thousand steps. A real difference that small would be
multiplied by up to 1/EPSILON and still stay below 1e-6 of what was summed, so nothing is lost.
"""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedValues:
    """The values compared inside the groups, in group order.

    Attributes:
        value_N: float64[N], step returns or episode returns.
        magnitude_N: float64[N], the size of what was summed for each value, signs left out; None where that is the
            value's own size. See `RELATIVE_TOLERANCE`.
        share_N: float64[N], how much each value counts, with whole sums per group; None: 1 each. (The episode level
            lets the steps of a trajectory share one count.)

    Example: a return of 0.1 that was summed from 10.1 and -10 is `GroupedValues(np.array([0.1]), np.array([20.1]))`.
    """

    value_N: FloatArray
    magnitude_N: FloatArray | None = None
    share_N: FloatArray | None = None

    @property
    def summed_N(self) -> FloatArray:
        """The magnitudes that the rounding tolerance refers to, float64[N]."""
        return self.value_N if self.magnitude_N is None else self.magnitude_N


@dataclass(frozen=True, slots=True)
class Normalisation:
    """How a value becomes an advantage inside its group: (value - baseline) / F.

    Attributes:
        mode: "mean_std_norm": F = std + epsilon; "mean_norm": F = 1.
        baseline: "mean" of the group, or "leave_one_out": the mean of the others.
        ddof: of the std, 0 population or 1 unbiased.
        epsilon: added to the std, in the units of the values.

    Example: `Normalisation("mean_norm").baseline == "mean"`.
    """

    mode: str = "mean_std_norm"
    baseline: str = "mean"
    ddof: int = 1
    epsilon: float = EPSILON


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatistics:
    """Size, mean and spread of each group, and each member's deviation.

    Attributes:
        count_G: float64[G], members of each group (episode level: trajectories, if those are what is counted).
        mean_G: float64[G], units of the values.
        std_G: float64[G], units of the values.
        deviation_N: float64[N], value - mean, 0 where it is rounding.

    Example: values 1, 3 | 5 in two groups, ddof 0: count_G [2, 1], mean_G [2, 5], std_G [1, 0], deviation_N [-1, 1, 0].
    """

    count_G: FloatArray
    mean_G: FloatArray
    std_G: FloatArray
    deviation_N: FloatArray


def group_statistics(compared: GroupedValues, groups: Runs, ddof: int) -> GroupStatistics:
    """Mean, standard deviation and deviations of each group.

        mean = sum share * value / n        std = sqrt(sum share * (value - mean)^2 / (n - ddof)), 0 where n <= ddof

    n is the sum of the group's shares: its number of members, unless `compared` has other shares. Members are first
    compared with one of them, so a group of equal values has deviation exactly 0 whatever its size.
    """
    value_N, share_N = compared.value_N, compared.share_N
    # Fresh memory costs more than the arithmetic here, so arrays are reused where they can be.
    if share_N is None:
        count_G = groups.size_G.astype(np.float64)
    else:
        count_G = np.rint(_group_sums(share_N, groups, None))
    mean_G = value_N[groups.start_G]
    scratch_N = mean_G[groups.run_N]
    deviation_N = value_N - scratch_N
    shift_G = _group_sums(deviation_N, groups, share_N)
    shift_G /= count_G
    np.take(shift_G, groups.run_N, out=scratch_N, mode="clip")  # "clip" because "raise" copies; all runs are in range
    deviation_N -= scratch_N
    mean_G += shift_G
    clear_rounding(deviation_N, compared.summed_N, groups, scratch_N)
    std_G = _group_sums(np.multiply(deviation_N, deviation_N, out=scratch_N), groups, share_N)
    degrees_G = np.subtract(count_G, ddof, out=shift_G)
    degrees_G[degrees_G <= 0.0] = np.inf
    std_G /= degrees_G
    return GroupStatistics(count_G, mean_G, np.sqrt(std_G, out=std_G), deviation_N)


def _group_sums(value_N: FloatArray, groups: Runs, share_N: FloatArray | None) -> FloatArray:
    if share_N is not None:
        value_N = value_N * share_N
    return np.bincount(groups.run_N, weights=value_N).astype(np.float64, copy=False)


def clear_rounding(deviation_N: FloatArray, summed_N: FloatArray, groups: Runs, scratch_N: FloatArray) -> None:
    """Set deviations that are rounding to 0, in place: see `RELATIVE_TOLERANCE`. `scratch_N` is written to."""
    suspect_N = np.abs(deviation_N, out=scratch_N) <= RELATIVE_TOLERANCE * max(summed_N.max(), -summed_N.min())
    if not deviation_N[suspect_N].any():  # almost always: then the largest magnitude of each group is not needed
        return
    tolerance_G = RELATIVE_TOLERANCE * np.maximum.reduceat(np.abs(summed_N), groups.start_G)
    deviation_N[scratch_N <= tolerance_G[groups.run_N]] = 0.0


def normalised(
    statistics: GroupStatistics, groups: Runs, norm: Normalisation, factor_G: FloatArray | None = None
) -> FloatArray:
    """Advantage of each member inside its group, float64[N]: (value - mean) / F.

    F = std + epsilon for "mean_std_norm", 1 for "mean_norm". `factor_G` multiplies on top: another baseline than the
    mean is one (see `leave_one_out`).
    """
    scale_G = None
    if norm.mode == "mean_std_norm":
        scale_G = inverse_std(statistics, norm.epsilon)
    if factor_G is not None:
        scale_G = factor_G if scale_G is None else scale_G * factor_G
    if scale_G is None:
        return statistics.deviation_N
    scaled_N: FloatArray = scale_G[groups.run_N]
    scaled_N *= statistics.deviation_N
    return scaled_N


def inverse_std(statistics: GroupStatistics, epsilon: float) -> FloatArray:
    """1 / (std + epsilon) of each group, float64[G]."""
    divisor_G = statistics.std_G + epsilon
    divisor_G[divisor_G == 0.0] = 1.0  # equal values and epsilon 0: all deviations are 0
    return 1.0 / divisor_G


def leave_one_out(count_G: FloatArray) -> FloatArray:
    """n / (n - 1) of each group, 0 for a single member: value - mean of the others = n / (n - 1) * (value - mean)."""
    return np.where(count_G > 1.0, count_G / np.maximum(count_G - 1.0, 1.0), 0.0)


def batch_scaled(advantage_N: FloatArray, mode: str) -> FloatArray:
    """Advantages as they are ("none"), or divided by the population std of all of them + epsilon ("batch_std")."""
    return advantage_N if mode == "none" else advantage_N / (advantage_N.std() + EPSILON)
