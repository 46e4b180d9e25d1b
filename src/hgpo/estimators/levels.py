"""Levels: advantages inside step groups, the episode level, the weights of a step's levels, and their normalisation.

Shapes: N steps in group order (tasks are runs of neighbours), G groups (tasks at the episode level), M trajectories, I
items to be weighted (the levels, after the episode level if there is one), D the same items as the longest used item
of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators.base import Advantages, ComparedSteps, Level, check_choice, check_number
from hgpo.estimators.matches import Matches, history_matches
from hgpo.grouping import GroupedValues, GroupStatistics, Runs, StepGroups, changes, clear_rounding, group_statistics
from hgpo.returns import discounted_errors, discounted_returns, episode_magnitudes, episode_returns
from hgpo.steps import StepBatch

MODES = ("mean_std_norm", "mean_norm")
BATCH_MODES = ("none", "batch_std")
BASELINES = ("mean", "leave_one_out", "critic")
SOURCES = ("text", "embedding")
KERNELS = ("uniform", "epanechnikov")
EPSILON = 1e-6
"""Added to a standard deviation before a division by it, in units of the return; the published recipe's value."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Which states match; the options `match_…` of an estimator.

    Attributes:
        threshold: the least similarity of two states that match, above 0 and at most 1. 1: only equal states match.
        by: "text" compares the observations, "embedding" the batch's column of that name.
        kernel: weight of a match, "uniform" or "epanechnikov"; see `hgpo.estimators.neighbours`.
        own_trajectory: whether a step is compared with similar (not equal) states of its own trajectory.

    Example: `Matching(0.9).soft` is True.
    """

    threshold: float = 1.0
    by: str = "text"
    kernel: str = "uniform"
    own_trajectory: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < check_number("match_threshold", self.threshold) <= 1.0:
            raise ValueError(f"match_threshold must be above 0 and at most 1, got {self.threshold!r}")
        check_choice("match_by", self.by, SOURCES)
        check_choice("match_kernel", self.kernel, KERNELS)
        if not isinstance(self.own_trajectory, (bool, np.bool_)):
            raise ValueError(f"match_own_trajectory must be True or False, got {self.own_trajectory!r}")

    @classmethod
    def of(cls, options: Any) -> Matching:
        """Read the options `match_…` of an estimator's options."""
        own = getattr(options, "match_own_trajectory", True)
        return cls(options.match_threshold, options.match_by, options.match_kernel, own)

    @property
    def soft(self) -> bool:
        """Whether states that are not equal may match."""
        return self.threshold < 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        """The optional column of `StepBatch` that it needs, if any."""
        return ("embedding",) if self.soft and self.by == "embedding" else ()

    @property
    def level_0(self) -> str:
        """What the steps of a level-0 group have in common."""
        return f"similar state (by {self.by}, at least {self.threshold:g})" if self.soft else "same state"

    def level_names(self, history_length: int, of_history: str) -> tuple[str, ...]:
        """What the steps of a level-k group have in common, k = 0..K; `of_history` follows the number of steps."""
        counts = [f"{k} step{'s' if k > 1 else ''}" for k in range(1, history_length + 1)]
        return (self.level_0, *(f"{self.level_0} and {count} {of_history}" for count in counts))

    def levels(
        self, batch: StepBatch, groups: StepGroups, context: str = "observation", early: str = "truncate"
    ) -> tuple[Matches | None, ...]:
        """Which groups match at each level, see `history_matches`; None for each level if only equal states match.

        Raises:
            ValueError: `by` is "text" and an observation is not text.
        """
        if not self.soft:
            return (None,) * len(groups.starts)
        from hgpo.estimators.neighbours import similar_states  # which imports this module

        return history_matches(batch, groups, similar_states(batch, groups, self), context, early)


@dataclass(frozen=True, slots=True)
class Normalisation:
    """How a value becomes an advantage inside its group: (value - baseline) / F.

    Attributes:
        mode: "mean_std_norm": F = std + epsilon; "mean_norm": F = 1.
        baseline: "mean": the group's mean; "leave_one_out": the mean of the group's other members; "critic", for step
            levels only: the critic's value of the step, see `critic_level`.
        ddof: 0 for the population std, 1 for the unbiased std.
        epsilon: added to the std, in the units of the values.

    Example: `Normalisation("mean_norm").baseline == "mean"`.
    """

    mode: str = "mean_std_norm"
    baseline: str = "mean"
    ddof: int = 1
    epsilon: float = EPSILON


def normalised(
    statistics: GroupStatistics, groups: Runs, norm: Normalisation, factor_G: FloatArray | None = None
) -> FloatArray:
    """Advantage of each member inside its group, float64[N]: (value - mean) / F.

    The result is multiplied by `factor_G`, if given; the factor `leave_one_out` replaces the mean by the mean of the
    other members.
    """
    scale_G = inverse_scale(statistics, norm)
    if factor_G is not None:
        scale_G *= factor_G
    scaled_N: FloatArray = scale_G[groups.run_N]
    scaled_N *= statistics.deviation_N
    return scaled_N


def inverse_scale(statistics: GroupStatistics, norm: Normalisation) -> FloatArray:
    """1 / F of each group, float64[G]: F = std + epsilon for "mean_std_norm", 1 for "mean_norm"."""
    if norm.mode == "mean_norm":
        return np.ones_like(statistics.std_G)
    return 1.0 / np.where(statistics.std_G > 0.0, statistics.std_G + norm.epsilon, 1.0)  # 1: all deviations are 0


def leave_one_out(count_G: FloatArray) -> FloatArray:
    """n / (n - 1) of each group, 0 for a single member: value - mean of the others = n / (n - 1) * (value - mean)."""
    return np.where(count_G > 1.0, count_G / np.where(count_G > 1.0, count_G - 1.0, 1.0), 0.0)


def batch_scaled(advantage_N: FloatArray, mode: str) -> FloatArray:
    """Advantages, unchanged ("none") or divided by (their population std over the batch + epsilon) ("batch_std")."""
    return advantage_N if mode == "none" else advantage_N / (advantage_N.std() + EPSILON)


def critic_level(level: Level, batch: StepBatch, gamma: float, norm: Normalisation) -> Level:
    """A step level whose baseline is the critic's value of each step instead of the mean of its group.

        A = (R - V) / F,  F = root mean square of R - V over the batch + epsilon, or 1

    R is the discounted return, minus the step's penalty, plus the critic's discounted value of the last state where a
    time limit cut the trajectory. Every step is used, so all levels of a batch have the same advantages.
    """
    advantage_N = (discounted_errors(batch, gamma, 1.0) - batch.penalty)[level.row_N]
    if norm.mode == "mean_std_norm" and (root := np.sqrt(np.mean(advantage_N**2))) > 0.0:
        advantage_N /= root + norm.epsilon
    return replace(level, advantage_N=advantage_N, used_N=np.ones(len(advantage_N), dtype=np.bool_))


def step_level(
    k: int,
    groups: StepGroups,
    compared: GroupedValues,
    norm: Normalisation,
    statistics: GroupStatistics | None = None,
    matches: Matches | None = None,
) -> Level:
    """Build level k, which compares each step with the steps that share its context of length k; weight 1.

        A_k = c * (R - mean(G_k)) / F,  F = std(G_k) + epsilon or 1,  c = 1 or n / (n - 1) for "leave_one_out"

    A_k is 0 for a step that is alone in its group or has no group at this level.

    Args:
        k: the level.
        groups: the hierarchy.
        compared: R, in group order.
        norm: the baseline, and F.
        statistics: statistics of the groups, if their deviations are not R - mean(G_k); None: computed from R.
        matches: which groups match; a step is compared with all steps of these.
    """
    runs, present_N = Runs.from_starts(groups.starts[k]), groups.present[k]
    if statistics is None:
        steps = ComparedSteps(runs, groups.row_N, groups.batch_trajectory, matches)
        statistics, runs = steps.statistics(compared, norm.ddof)
    factor_G = leave_one_out(statistics.count_G) if norm.baseline == "leave_one_out" else None
    advantage_N = normalised(statistics, runs, norm, factor_G)
    used_N = (statistics.count_G > 1.0)[runs.run_N]
    if present_N is not None:
        advantage_N = advantage_N * present_N
        used_N &= present_N
    return Level(
        k=k,
        row_N=groups.row_N,
        starts_N=groups.starts[k],
        compared=compared,
        ddof=norm.ddof,
        advantage_N=advantage_N,
        weight_N=1.0,
        used_N=used_N,
        present_N=present_N,
        batch_trajectory=groups.batch_trajectory,
        matches=matches,
    )


COUNTS = ("trajectory", "step")


def episode_advantages(batch: StepBatch, gamma: float, norm: Normalisation, count: str = "trajectory") -> Advantages:
    """Advantages of an estimator that has only the episode level; see `episode_level` for `norm` and `count`."""
    row_N = np.argsort(batch.group, kind="stable")
    tasks = StepGroups(row_N, changes(batch.group[row_N]), (), (), batch.trajectory)
    return Advantages.of(discounted_returns(batch, gamma), (episode_level(batch, tasks, norm, count),))


def episode_level(batch: StepBatch, groups: StepGroups, norm: Normalisation, count: str = "step") -> Level:
    """Build the episode level, which compares the episode returns of a task's trajectories; weight 1.

        A = (S - mean) / (std + norm.epsilon), S = sum of the trajectory's rewards - the step's own penalty

    mean and std are over the task. With count="step" every step has weight 1, so a long trajectory has more weight (the
    published recipe). With count="trajectory" every trajectory has weight 1, shared equally by its steps: without
    penalties these are the mean and std over trajectories. A is 0 in a task with one trajectory.

    Args:
        batch: the steps.
        groups: the steps in group order; only the tasks are used.
        norm: whether to divide by the std; baseline "leave_one_out" takes the mean over the task's other trajectories.
        count: "step" or "trajectory", see above.
    """
    row_N, tasks = groups.row_N, Runs.from_starts(groups.task_starts_N)
    share_N = None if count == "step" else 1.0 / np.diff(batch.trajectory_start)[batch.trajectory[row_N]]
    compared = GroupedValues(episode_returns(batch)[row_N], episode_magnitudes(batch, row_N), share_N)
    statistics = group_statistics(compared, tasks, norm.ddof)
    if norm.baseline == "leave_one_out":
        deviation_N = _from_the_others(statistics, tasks, batch.trajectory[row_N], share_N)
        clear_rounding(deviation_N, compared.summed_N, tasks, np.empty_like(deviation_N))
        statistics = replace(statistics, deviation_N=deviation_N)

    compared_G = np.bincount(batch.trajectory_group) > 1
    return Level(
        k=None,
        row_N=row_N,
        starts_N=groups.task_starts_N,
        compared=compared,
        ddof=norm.ddof,
        advantage_N=normalised(statistics, tasks, norm, factor_G=compared_G.astype(np.float64)),
        weight_N=1.0,
        used_N=compared_G[tasks.run_N],
        batch_trajectory=batch.trajectory,
        name="whole trajectories of the task",
    )


def _from_the_others(
    statistics: GroupStatistics, tasks: Runs, trajectory_N: IntArray, share_N: FloatArray | None
) -> FloatArray:
    """Deviations from the mean over the other trajectories of the task, float64[N].

    mean of the others = mean - D / (n - c), where D and c are the sums of share * deviation and of share over the steps
    of the step's own trajectory, and n is the sum of share over the task.
    """
    weighted_N = statistics.deviation_N if share_N is None else statistics.deviation_N * share_N
    own_M = np.bincount(trajectory_N, weights=weighted_N)
    counted_M = np.rint(np.bincount(trajectory_N, weights=share_N))
    others_N = statistics.count_G[tasks.run_N] - counted_M[trajectory_N]
    others_N[others_N == 0.0] = np.inf  # the only trajectory of its task
    deviation_N: FloatArray = statistics.deviation_N + own_M[trajectory_N] / others_N
    return deviation_N


MISSING = ("zero", "renormalize", "drop_zero")
DROP_ZERO_EPSILON = 1e-6


def length_weights(
    length_I: list[int], alpha: float, used_IN: list[BoolArray], missing: str
) -> list[FloatArray | float]:
    """Weights of the levels by their length: I arrays float64[N], or I numbers if they are equal for all steps.

        "zero":         w_i = L_i^alpha / sum_j L_j^alpha over all items: an unused item has advantage 0 and keeps its
                        weight, which shrinks the final advantage (the paper has fixed weights)
        "renormalize":  w_i = L_i^alpha / sum_{j used} L_j^alpha for used items, 0 for others
        "drop_zero":    as "renormalize" with 1e-6 added to the sum, as published (the caller marks items with
                        advantage 0 as unused)

    Powers are computed of L_i / L_d, where d is the longest item that counts in the sum, so that no alpha overflows.
    With alpha = inf the longest item has weight 1; items of equal length share it.

    Args:
        length_I: L, the length of each item, at least 1, ascending.
        alpha: at least 0, may be inf.
        used_IN: per item, whether it is used for each step.
        missing: "zero", "renormalize" or "drop_zero".
    """
    length = np.array(length_I, dtype=np.float64)
    if missing == "zero":
        power_I = (length / length[-1]) ** alpha
        weights: list[float] = (power_I / power_I.sum()).tolist()
        return list(weights)

    with np.errstate(over="ignore"):  # items longer than the longest used one are unused: tril clears their powers
        power_ID = np.tril((length[None, :] / length[:, None]) ** alpha).T.copy()
    count = len(used_IN[0])
    longest_N = np.zeros(count, dtype=np.int64)
    for item, used_N in enumerate(used_IN):
        np.copyto(longest_N, item, where=used_N)
    weight_IN = np.empty((len(used_IN), count))
    for weight_N, power_D, used_N in zip(weight_IN, power_ID, used_IN, strict=True):
        power_D.take(longest_N, out=weight_N, mode="clip")  # "clip" because "raise" copies; all items are in range
        weight_N *= used_N
    total_N = np.zeros(count)
    for weight_N in weight_IN:
        total_N += weight_N
    if missing == "drop_zero":
        total_N += (DROP_ZERO_EPSILON * length**-alpha).take(longest_N)
    total_N[total_N == 0.0] = 1.0  # nothing used: all weights are 0 already
    for weight_N in weight_IN:
        weight_N /= total_N
    return list(weight_IN)
