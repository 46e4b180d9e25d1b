"""NestedTD: temporal differences with values of nested groups, learned from all rollouts of a task.

    Q_t = r_t + gamma V_K(s_{t+1}, its history)
    D_t = c_t u_t [Q_t - V_K(s_t, its history)] - (penalty_t - mean penalty of the steps in s_t)
    A_t = sign(D_t) |D_t|^rho

    V_0(g) = weighted mean of Q over the steps of g       V_k(g) = w V + (1 - w) V_{k-1}(parent of g)
    w      = m / (m + h_k),  V the weighted mean of Q over g,  m the trajectories in g
    h_k    = shrinkage sigma_k^2 / tau_k^2

Groups of level 0 are the steps of a task in one state, those of level k share the k (state, action) pairs before it,
too: the hierarchy of HGPO. The values are the fixed point of these equations.

- sigma_k^2 is the variance of Q within the groups of level k, and tau_k^2 the variance between groups with one parent.
  Both are estimated from the whole batch by the moments of `hgpo.estimators.pooled`, first with the returns in place of
  Q, then with the resulting Q. Where histories change the outcome, because one text stands for many states, tau_k^2 is
  large and each history keeps its own value; where they do not, their values are averaged.
- An episode that a time limit cut has the value of its last state, estimated from the rollouts that acted there. u_t is
  0 where there are none, else 1.
- c_t, also the weight in the means, corrects the frequencies of actions: c = (q / (n_a / n))^action_power, where n_a of
  n steps in the state took the action, and q is p / (1 - (1 - p)^n), scaled to sum 1 over the state's actions, with p
  the policy's mean probability of the responses. Where these p sum to less than one half, an action has many other
  responses, so that p says little of it: c = 1.
- With match_threshold below 1, the sums over g are over all steps whose context matches (`hgpo.estimators.matches`), m
  counts their trajectories, and the values remain weighted means: kernel-based reinforcement learning (Ormoneit & Sen,
  Machine Learning 49, 2002). Frequencies of actions are those of equal states.
- Few steps just before a win have much larger differences than all others. rho = `difference_power` below 1 keeps the
  order of the differences and makes large ones smaller relative to small ones.

Shapes: N steps, G groups of a level, F groups of the last level. Arrays suffixed _N are in group order. Source: this
project. A fixed point of observed transitions is the certainty-equivalence estimate (Sutton & Barto, Reinforcement
Learning, 2nd ed., §6.3); p / (1 - (1 - p)^n) weighs as in Horvitz & Thompson, 1952. docs/algorithms/nested_td.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import (
    Advantages,
    Estimator,
    check_choice,
    check_history,
    check_number,
    distinct_per_run,
    to_rows,
)
from hgpo.estimators.levels import BATCH_MODES, Matching, Normalisation, batch_scaled, step_level
from hgpo.estimators.matches import Matches, places
from hgpo.estimators.mixed_effects import Partition, action_cells
from hgpo.estimators.pooled import Spread, moment_terms
from hgpo.estimators.transition_graph import won
from hgpo.grouping import GroupedValues, GroupStatistics, Runs, StepGroups, group_statistics, group_steps
from hgpo.returns import discounted_returns, unpenalised_returns
from hgpo.steps import StepBatch

LARGEST_GAMMA = 0.99
_SWEEPS = 2_500  # enough for `LARGEST_GAMMA`: 0.99 ** 2500 = 1e-11
_TOLERANCE = 1e-6
"""Of the values, where the largest reward of the task is 1."""
_ROUNDING = 1e-4
"""A difference of at most this times the largest target of the state is 0."""
_LEAST_COVERAGE = 0.5
_LEAST_PROBABILITY = 1e-300
_LEAST_FREEDOM = 0.5  # degrees of freedom are whole numbers; less is rounding
_LARGEST_RATIO = 64.0
"""Of the two variances: a group that 8 trajectories share then has a weight of 1/17 with the default shrinkage."""


@dataclass(frozen=True, slots=True)
class NestedTdOptions:
    """Options of NestedTD.

    Attributes:
        history_length: K, how many (state, action) pairs before a state its finest value distinguishes, at least 0.
        shrinkage: multiple of the estimated ratio of variances that the value of the coarser group counts as, in
            trajectories; at least 0. 0: values of the finest groups alone.
        action_power: how far the frequencies of actions are corrected by the policy's probabilities, in [0, 1]; 0 does
            without the column `response_log_prob`.
        difference_power: rho of the module's equation, above 0 and at most 1.
        bootstrap_truncated: whether an episode that a time limit cut (column `truncated`) is valued as if it went on
            from its last state; False: as if it ended there.
        mode: "batch_std" divides all advantages by their population std + 1e-6, "none" leaves units of the return.
        match_threshold, match_by, match_kernel: compare similar states, see `Matching`.
    """

    history_length: int = 2
    shrinkage: float = 2.0
    action_power: float = 0.5
    difference_power: float = 0.7
    bootstrap_truncated: bool = True
    mode: str = "batch_std"
    match_threshold: float = 1.0
    match_by: str = "text"
    match_kernel: str = "uniform"

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        check_history(self.history_length)
        check_number("shrinkage", self.shrinkage)
        for name in ("action_power", "difference_power"):
            if check_number(name, getattr(self, name)) > 1.0:
                raise ValueError(f"{name} must be at most 1, got {getattr(self, name)!r}")
        if self.difference_power == 0:
            raise ValueError("difference_power must be above 0: it would make all advantages 1 or -1")
        if not isinstance(self.bootstrap_truncated, bool):
            raise ValueError(f"bootstrap_truncated must be True or False, got {self.bootstrap_truncated!r}")
        check_choice("mode", self.mode, BATCH_MODES)
        Matching.of(self)


def nested_td(batch: StepBatch, gamma: float, options: NestedTdOptions) -> Advantages:
    """A of every step, see the module, float64[N].

    Raises:
        ValueError: gamma is above `LARGEST_GAMMA`: rollouts with loops have no fixed point at 1.
    """
    if gamma > LARGEST_GAMMA:
        raise ValueError(f"nested_td needs gamma of at most {LARGEST_GAMMA}, got {gamma:g}: its values follow loops")
    history = options.history_length
    groups = group_steps(batch, history, "observation_action" if history else "observation")
    runs = [Runs.from_starts(starts_N) for starts_N in groups.starts]
    trajectory_N = batch.trajectory[groups.row_N]
    matches = Matching.of(options).levels(batch, groups, "observation_action" if history else "observation")
    compared = [_Compared(*level, trajectory_N) for level in zip(runs, matches, strict=True)]
    next_N = _next_values(batch, groups, runs, options.bootstrap_truncated)
    correction_N = _action_correction(batch, groups, runs[0], options.action_power)
    values = _NestedValues(compared, correction_N, options.shrinkage)

    scale_N = _task_scale(batch, groups)
    reward_N = batch.reward[groups.row_N] / scale_N
    return_N = unpenalised_returns(batch, gamma)[groups.row_N] / scale_N
    target_N, value_N = values.targets(return_N, reward_N, next_N, gamma)
    difference_N = target_N - value_N
    largest_G = np.maximum.reduceat(np.abs(target_N), runs[0].start_G)
    difference_N[np.abs(difference_N) <= np.maximum(_ROUNDING * largest_G[runs[0].run_N], 10 * _TOLERANCE)] = 0.0
    difference_N *= scale_N * correction_N * (next_N < values.size + 1)  # 0 where the next value is unknown
    difference_N -= compared[0].statistics(batch.penalty[groups.row_N]).deviation_N
    advantage_N = batch_scaled(np.sign(difference_N) * np.abs(difference_N) ** options.difference_power, options.mode)

    targets, norm = GroupedValues(target_N * scale_N), Normalisation("mean_norm")
    levels = [step_level(k, groups, targets, norm, batch.trajectory, matches=each) for k, each in enumerate(matches)]
    return Advantages(to_rows(advantage_N, groups.row_N), discounted_returns(batch, gamma), tuple(levels))


def _task_scale(batch: StepBatch, groups: StepGroups) -> FloatArray:
    """The largest reward of each step's task, signs left out, or 1, float64[N]: tasks do not affect each other."""
    tasks = Runs.from_starts(groups.task_starts_N)
    largest_G = np.maximum.reduceat(np.abs(batch.reward[groups.row_N]), tasks.start_G)
    scale_N: FloatArray = np.where(largest_G > 0, largest_G, 1.0)[tasks.run_N]
    return scale_N


def _next_values(batch: StepBatch, groups: StepGroups, runs: list[Runs], bootstrap: bool) -> IntArray:
    """Where each step's next value is in [values of the F finest groups, values of the G states, 0, 0], int64[N].

    A step inside a trajectory has the value of the next step's finest group. The last step of a trajectory that was cut
    has that of the state of its `next_observation`, or the last 0 if no step of the task was taken there; any other
    last step has the first 0.
    """
    fine, states = runs[-1], runs[0]
    ended = len(fine.start_G) + len(states.start_G)
    group_of_row_N = to_rows(fine.run_N, groups.row_N)
    next_N = np.append(group_of_row_N[batch.order][1:], ended)
    last_M = batch.trajectory_start[1:] - 1
    next_N[last_M] = ended
    if bootstrap and batch.truncated is not None:
        cut_M = batch.truncated[batch.order[last_M]]
        cut_M = cut_M if batch.success is None else cut_M & ~won(batch)
        found_M = _state_shown(batch, batch.order[last_M], groups.row_N[states.start_G])
        shown_M = np.where(found_M < 0, ended + 1, len(fine.start_G) + found_M)
        next_N[last_M[cut_M]] = shown_M[cut_M]
    return to_rows(next_N, batch.order)[groups.row_N]


def _state_shown(batch: StepBatch, row_M: IntArray, first_G: IntArray) -> IntArray:
    """Which state, of those whose first rows are `first_G`, these rows' `next_observation` is, int64[M]; -1: none."""
    if batch.next_observation is None:
        return np.full(len(row_M), -1)
    width = max(int(batch.observation.max()), int(batch.next_observation.max())) + 1
    key_G = batch.group[first_G] * width + batch.observation[first_G]  # ascending, as groups are sorted by it
    key_M = batch.group[row_M] * width + batch.next_observation[row_M]
    return places(key_G, key_M)


def _action_correction(batch: StepBatch, groups: StepGroups, states: Runs, power: float) -> FloatArray:
    """(probability of the action, corrected for the chance that it is seen, over its frequency) ^ power, float64[N]."""
    if not power:
        return np.ones(len(batch))
    assert batch.action is not None, "`needs` has asked for both"
    assert batch.response_log_prob is not None, "`needs` has asked for both"
    cells = action_cells(states, batch.action[groups.row_N])
    chosen_N = np.maximum(cells.means(np.exp(batch.response_log_prob[groups.row_N])), _LEAST_PROBABILITY)
    steps_N = states.size_G.astype(np.float64)[states.run_N]
    with np.errstate(divide="ignore"):  # of an action that is certain: it is seen with probability 1
        seen_N = -np.expm1(steps_N * np.log1p(-np.minimum(chosen_N, 1.0)))
    weight_N = chosen_N / seen_N / cells.count_N
    total_G = np.bincount(states.run_N, weights=weight_N)
    coverage_G = np.bincount(states.run_N, weights=chosen_N / cells.count_N)
    corrected_N = (weight_N / total_G[states.run_N] * steps_N) ** power
    return np.where(coverage_G[states.run_N] < _LEAST_COVERAGE, 1.0, corrected_N)


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """What the steps of one level are compared with: their group, or all groups that match it."""

    runs: Runs
    matches: Matches | None
    trajectory_N: IntArray

    def trajectories(self) -> IntArray:
        """Number of different ones, int64[G]."""
        if self.matches is None:
            return distinct_per_run(self.trajectory_N, self.runs)
        return np.bincount(self.matches.visits(self.runs, self.trajectory_N, np.zeros(len(self.trajectory_N)))[0])

    def sums(self, sum_G: FloatArray) -> FloatArray:
        """Sums over what is compared, from those over the groups."""
        return sum_G if self.matches is None else self.matches.sums(sum_G)

    def statistics(self, value_N: FloatArray) -> GroupStatistics:
        """Of the values, one entry per group, or per step where others match."""
        if self.matches is None:
            return group_statistics(GroupedValues(value_N), self.runs, ddof=0)
        return self.matches.statistics(GroupedValues(value_N), self.runs, self.trajectory_N, ddof=0)[0]

    def spread(self, value_N: FloatArray) -> Spread:
        """Number compared, and deviations from the means."""
        if self.matches is None:
            return Partition.of(self.runs.run_N).spread(value_N)
        statistics = self.statistics(value_N)
        return Spread(statistics.count_G, statistics.deviation_N)


class _NestedValues:
    """The values of all groups as the fixed point of their equations.

    Args:
        levels: what is compared at each.
        weight_N: of each step in the means.
        shrinkage: see `NestedTdOptions`.

    Attributes:
        size: number of the finest groups and the states together.
    """

    def __init__(self, levels: list[_Compared], weight_N: FloatArray, shrinkage: float) -> None:
        self._levels, self._weight_N, self._shrinkage = levels, weight_N, shrinkage
        self._parents = [coarse.runs.run_N[fine.runs.start_G] for coarse, fine in pairwise(levels)]
        self._acting = [level.trajectories() for level in levels[1:]] if shrinkage else []
        self._total = self._sums(weight_N)
        self._finest = len(self._total[-1])
        self.size = self._finest + len(self._total[0])

    def targets(
        self, return_N: FloatArray, reward_N: FloatArray, next_N: IntArray, gamma: float
    ) -> tuple[FloatArray, FloatArray]:
        """Q of each step and V_K of its group, float64[N] each.

        Args:
            return_N: discounted returns, from which the variances are estimated first.
            reward_N: of each step.
            next_N: see `_next_values`.
            gamma: discount.
        """
        value, target_N = np.zeros(self.size + 2), return_N
        for _ in range(2 if self._parents and self._shrinkage else 1):
            shares = self._shares(target_N)
            self._solve(value, shares, reward_N, next_N, gamma)
            target_N = reward_N + gamma * value.take(next_N)
        return target_N, value[: self._finest][self._levels[-1].runs.run_N]

    def _shares(self, target_N: FloatArray) -> list[FloatArray]:
        """w of the groups of the levels from 1 on."""
        if not self._shrinkage:
            return [np.ones(len(total_G)) for total_G in self._total[1:]]
        spreads = [level.spread(target_N) for level in self._levels]
        ratios = [variance_ratio(coarse, fine) for coarse, fine in pairwise(spreads)]
        return [
            count_G / (count_G + self._shrinkage * ratio) for count_G, ratio in zip(self._acting, ratios, strict=True)
        ]

    def _solve(
        self, value: FloatArray, shares: list[FloatArray], reward_N: FloatArray, next_N: IntArray, gamma: float
    ) -> None:
        """Move `value`, [V_K of the finest groups, V_0 of the states, 0, 0], to the fixed point, in place."""
        earned_N, discount_N = self._weight_N * reward_N, self._weight_N * gamma
        for _ in range(_SWEEPS):
            new = self._values(earned_N + discount_N * value.take(next_N), shares)
            change = np.abs(new - value[: self.size]).max()
            value[: self.size] = new
            if change <= _TOLERANCE * (1.0 - gamma):
                break

    def _sums(self, weighted_N: FloatArray) -> list[FloatArray]:
        """Over what the groups of each level are compared with, the coarsest first."""
        sums = [weighted_N]
        for group_N in (self._levels[-1].runs.run_N, *reversed(self._parents)):
            sums.append(np.bincount(group_N, weights=sums[-1]).astype(np.float64, copy=False))
        return [level.sums(sum_G) for level, sum_G in zip(self._levels, sums[:0:-1], strict=True)]

    def _values(self, weighted_N: FloatArray, shares: list[FloatArray]) -> FloatArray:
        """V_K of the finest groups, then V_0 of the states, from weighted targets."""
        means = [sum_G / total_G for sum_G, total_G in zip(self._sums(weighted_N), self._total, strict=True)]
        value = means[0]
        for mean_G, share_G, parent_G in zip(means[1:], shares, self._parents, strict=True):
            value = share_G * mean_G + (1.0 - share_G) * value[parent_G]
        return np.concatenate([value, means[0]])


def variance_ratio(parent: Spread, child: Spread) -> float:
    """sigma^2 / tau^2 of the finer (child) of two nested partitions, at most 64; 64 where they cannot be estimated.

    The estimates are those of `hgpo.estimators.pooled.variance_components` for the whole batch.
    """
    inside, freedom, across, across_freedom, divisor = (float(term_N.sum()) for term_N in moment_terms(parent, child))
    if freedom < _LEAST_FREEDOM or divisor < _LEAST_FREEDOM:
        return _LARGEST_RATIO
    within = inside / freedom
    between = (across - across_freedom * within) / divisor
    return min(within / between, _LARGEST_RATIO) if between > 0.0 else _LARGEST_RATIO


def _needs(options: NestedTdOptions) -> tuple[str, ...]:
    needs = Matching.of(options).needs
    if options.action_power:
        return ("action", "response_log_prob", *needs)
    return ("action", *needs) if options.history_length else needs


def _level_name(k: int, state: str) -> str:
    return f"{state} and {k} {'step' if k == 1 else 'steps'} before" if k else state


NESTED_TD = Estimator(
    "nested_td",
    nested_td,
    NestedTdOptions,
    label="NestedTD",
    needs=_needs,
    levels=lambda options: tuple(
        _level_name(k, Matching.of(options).level_0) for k in range(options.history_length + 1)
    ),
    follows_memory=False,
)
