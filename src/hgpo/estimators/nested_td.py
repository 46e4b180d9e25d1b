"""NestedTD: temporal-difference advantages with values that are learned from all rollouts of a task.

    Q_t = r_t + gamma V_K(s_{t+1})                                           target of step t
    D_t = c_t u_t (Q_t - V_K(s_t)) - (p_t - mean p of the steps in s_t)      p: penalty
    A_t = sign(D_t) |D_t|^rho                                                advantage

    V_0(g) = Qbar(g)                                                         Qbar: mean of Q over g, weighted by c
    V_k(g) = w Qbar(g) + (1 - w) V_{k-1}(parent of g)
    w = m / (m + b sigma_k^2 / tau_k^2)                                      m: number of trajectories in g

A group g of level 0 contains the steps of a task in one state. A group of level k contains those of them that also
share the k (state, action) pairs before the state, as in HGPO with context="observation_action"; its parent is the
group of level k - 1 that contains it.
V_K(s_t) is the value of the level-K group of step t. The targets depend on the values and the values on the targets, so
the values are computed as the fixed point of these equations.

- **Shrinkage.** sigma_k^2 is the variance of Q within the groups of level k, tau_k^2 the variance between groups with
  the same parent. Both are estimated from the whole batch (`hgpo.estimators.pooled`): first with returns in place of Q,
  then with the resulting Q. If the history changes the outcome, because one text stands for several states, tau_k^2 is
  large and each group keeps its own value. If it does not, groups get nearly the value of their parent.
- **Ends.** An episode that a time limit cut has the value of its last state, if a rollout of the task, itself included,
  acted there. If none did, the next value is unknown and u_t = 0; otherwise u_t = 1. In V, an unknown value counts as
  0, like the end of a failure.
- **Rounding.** Q - V counts as 0 up to 1e-4 of the state's largest Q, and up to 1e-5 of the task's largest reward.
- **Action frequencies.** A sample contains some actions more often, others less often than the policy chooses them. If
  n_a of the n steps in a state took action a, c = (q_a n / n_a)^alpha, where q_a = p_a / (1 - (1 - p_a)^n), scaled to
  sum 1 over the state's actions, and p_a is the mean probability of the responses with this action. If the p_a sum to
  less than 1/2, c = 1: responses of an action are then so many that the probability of one says little.
- **Similar states.** With match_threshold below 1, g stands for all steps whose context matches
  (`hgpo.estimators.matches`). Values are then still weighted means, as in kernel-based reinforcement learning (Ormoneit
  & Sen, Machine Learning 49, 2002). Action frequencies are still those of equal states.
- **rho** below 1 makes large differences smaller relative to small ones, in the same order: the few steps just before
  a win have much larger differences than all others.

Shapes: N steps, G groups of a level, F groups of level K. Arrays suffixed _N are in group order. Source: this project.
The fixed point for observed transitions is the certainty-equivalence estimate (Sutton & Barto, Reinforcement Learning,
2nd ed., §6.3); p / (1 - (1 - p)^n) is a Horvitz-Thompson weight (1952). docs/algorithms/nested_td.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import (
    Advantages,
    ComparedSteps,
    Estimator,
    check_choice,
    check_history,
    check_number,
    to_rows,
)
from hgpo.estimators.levels import BATCH_MODES, Matching, Normalisation, batch_scaled, step_level
from hgpo.estimators.matches import indices_of
from hgpo.estimators.pooled import Partition, Spread, action_cells, moment_terms
from hgpo.estimators.transition_graph import won
from hgpo.grouping import GroupedValues, Runs, StepGroups, group_steps
from hgpo.returns import discounted_returns, unpenalised_returns
from hgpo.steps import StepBatch

LARGEST_GAMMA = 0.99
"""With 1, a loop in the rollouts has no fixed point."""
_SWEEPS = 2_500  # enough for `LARGEST_GAMMA`: 0.99 ** 2500 = 1e-11
_TOLERANCE = 1e-6
"""Largest error of the values, in units of the task's largest reward."""
_ROUNDING = 1e-4
"""A difference of at most this share of the state's largest target counts as 0."""
_LEAST_COVERAGE = 0.5
_LEAST_PROBABILITY = 1e-300
_LEAST_FREEDOM = 0.5  # degrees of freedom are whole numbers; less is rounding
_LARGEST_RATIO = 64.0
"""Largest sigma^2 / tau^2: a group with 8 trajectories then has w = 1/17 with the default shrinkage."""


@dataclass(frozen=True, slots=True)
class NestedTdOptions:
    """Options of NestedTD.

    Attributes:
        history_length: K, the number of (state, action) pairs before a state on which its value depends, at least 0.
        shrinkage: b, how much a group's value is moved towards its parent's, at least 0; 0: only the finest groups.
        action_power: alpha, how much the frequencies of actions are corrected, in [0, 1]; with 0, the column
            `response_log_prob` is not needed.
        difference_power: rho, above 0 and at most 1.
        bootstrap_truncated: the value after the last step of an episode that a time limit cut (column `truncated`).
            True: the value of the state in which it was cut; False: 0.
        mode: "batch_std" divides all advantages by their population std + 1e-6, "none" does not; they are then in
            units of the return if difference_power is 1.
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
        check_history(self.history_length)
        check_number("shrinkage", self.shrinkage)
        for name in ("action_power", "difference_power"):
            if check_number(name, getattr(self, name)) > 1.0:
                raise ValueError(f"{name} must be at most 1, got {getattr(self, name)!r}")
        if self.difference_power == 0:
            raise ValueError("difference_power must be above 0: with 0, every advantage would be 1, -1 or 0")
        if not isinstance(self.bootstrap_truncated, bool):
            raise ValueError(f"bootstrap_truncated must be True or False, got {self.bootstrap_truncated!r}")
        check_choice("mode", self.mode, BATCH_MODES)
        Matching.of(self)


def nested_td(batch: StepBatch, gamma: float, options: NestedTdOptions) -> Advantages:
    """A of every step, float64[N]; the module has the equations.

    `levels` compare the targets Q with weight 0; the advantage is not their sum. gamma is at most `LARGEST_GAMMA`.
    """
    context = "observation_action" if options.history_length else "observation"
    groups = group_steps(batch, options.history_length, context)
    matches = Matching.of(options).levels(batch, groups, context)
    levels = [
        ComparedSteps(Runs.from_starts(starts_N), groups.row_N, batch.trajectory, each)
        for starts_N, each in zip(groups.starts, matches, strict=True)
    ]
    states = levels[0].groups
    next_N = _next_values(batch, groups, levels[-1].groups, states, options.bootstrap_truncated)
    correction_N = _action_correction(batch, groups, states, options.action_power)
    values = _NestedValues(levels, correction_N, options.shrinkage)

    scale_N = _task_scale(batch, groups)
    reward_N = batch.reward[groups.row_N] / scale_N
    return_N = unpenalised_returns(batch, gamma)[groups.row_N] / scale_N
    target_N, value_N = values.targets(return_N, reward_N, next_N, gamma)
    difference_N = target_N - value_N
    largest_G = np.maximum.reduceat(np.abs(target_N), states.start_G)
    difference_N[np.abs(difference_N) <= np.maximum(_ROUNDING * largest_G[states.run_N], 10 * _TOLERANCE)] = 0.0
    difference_N *= scale_N * correction_N * (next_N != values.unknown)
    penalties, _ = levels[0].statistics(GroupedValues(batch.penalty[groups.row_N]), ddof=0)
    difference_N -= penalties.deviation_N
    advantage_N = batch_scaled(np.sign(difference_N) * np.abs(difference_N) ** options.difference_power, options.mode)

    targets, norm = GroupedValues(target_N * scale_N), Normalisation("mean_norm")
    terms = [step_level(k, groups, targets, norm, matches=each).weighted(0.0) for k, each in enumerate(matches)]
    return Advantages(to_rows(advantage_N, groups.row_N), discounted_returns(batch, gamma), tuple(terms))


def _task_scale(batch: StepBatch, groups: StepGroups) -> FloatArray:
    """Largest magnitude of a reward in each step's task, or 1 if all are 0, float64[N]: tolerances refer to it."""
    tasks = Runs.from_starts(groups.task_starts_N)
    largest_G = np.maximum.reduceat(np.abs(batch.reward[groups.row_N]), tasks.start_G)
    scale_N: FloatArray = np.where(largest_G > 0, largest_G, 1.0)[tasks.run_N]
    return scale_N


def _next_values(batch: StepBatch, groups: StepGroups, fine: Runs, states: Runs, bootstrap: bool) -> IntArray:
    """Index of the value after each step in the values of `_NestedValues`, int64[N].

    After a step inside a trajectory: the value of the next step's finest group. After the last step of a trajectory
    that a time limit cut: the value of the state in its `next_observation`, or the unknown value if no step of the task
    was taken there. After any other last step: 0.
    """
    ended = len(fine.start_G) + len(states.start_G)
    next_N = np.append(to_rows(fine.run_N, groups.row_N)[batch.order][1:], ended)
    last_M = batch.trajectory_start[1:] - 1
    next_N[last_M] = ended
    if bootstrap and batch.truncated is not None:
        cut_M = batch.truncated[batch.order[last_M]]
        cut_M = cut_M if batch.success is None else cut_M & ~won(batch)
        state_M = _next_states(batch, batch.order[last_M], groups.row_N[states.start_G])
        value_M = np.where(state_M < 0, ended + 1, len(fine.start_G) + state_M)
        next_N[last_M[cut_M]] = value_M[cut_M]
    return to_rows(next_N, batch.order)[groups.row_N]


def _next_states(batch: StepBatch, row_M: IntArray, first_G: IntArray) -> IntArray:
    """State in the `next_observation` of these rows, int64[M]; -1 if no step of the task was taken there.

    `first_G` is a row of each state, in the order of the states.
    """
    if batch.next_observation is None:
        return np.full(len(row_M), -1)
    width = max(int(batch.observation.max()), int(batch.next_observation.max())) + 1
    key_G = batch.group[first_G] * width + batch.observation[first_G]  # ascending, as groups are sorted by it
    key_M = batch.group[row_M] * width + batch.next_observation[row_M]
    return indices_of(key_G, key_M)


def _action_correction(batch: StepBatch, groups: StepGroups, states: Runs, power: float) -> FloatArray:
    """c of each step, float64[N]; see the module."""
    if not power:
        return np.ones(len(batch))
    assert batch.action is not None, "`needs` lists it"
    assert batch.response_log_prob is not None, "`needs` lists it"
    cells = action_cells(states, batch.action[groups.row_N])
    chosen_N = np.maximum(cells.means(np.exp(batch.response_log_prob[groups.row_N])), _LEAST_PROBABILITY)
    steps_N = states.size_G.astype(np.float64)[states.run_N]
    with np.errstate(divide="ignore"):  # an action of probability 1 is seen with probability 1
        seen_N = -np.expm1(steps_N * np.log1p(-chosen_N))
    weight_N = chosen_N / seen_N / cells.count_N
    total_G = np.bincount(states.run_N, weights=weight_N)
    coverage_G = np.bincount(states.run_N, weights=chosen_N / cells.count_N)
    corrected_N = (weight_N / total_G[states.run_N] * steps_N) ** power
    return np.where(coverage_G[states.run_N] < _LEAST_COVERAGE, 1.0, corrected_N)


class _NestedValues:
    """The values of all groups. An array of values has F + G + 2 entries: V_K of the F groups of level K, V_0 of the G
    states, 0 after the end of an episode, and 0 in place of an unknown value.

    Args:
        levels: what the steps of each level are compared with.
        weight_N: c, the weight of each step in the means.
        shrinkage: b.

    Attributes:
        unknown: index of the unknown value.
    """

    def __init__(self, levels: list[ComparedSteps], weight_N: FloatArray, shrinkage: float) -> None:
        self._levels, self._weight_N, self._shrinkage = levels, weight_N, shrinkage
        self._parents = [coarse.groups.run_N[fine.groups.start_G] for coarse, fine in pairwise(levels)]
        self._trajectories = [level.trajectories_G() for level in levels[1:]]
        self._total = self._sums(weight_N)
        self._finest = len(self._total[-1])
        self._size = self._finest + len(self._total[0])
        self.unknown = self._size + 1

    def targets(
        self, return_N: FloatArray, reward_N: FloatArray, next_N: IntArray, gamma: float
    ) -> tuple[FloatArray, FloatArray]:
        """Q of each step and the value V_K of its group, float64[N] each.

        Args:
            return_N: discounted returns, from which the variances are estimated at first.
            reward_N: the rewards.
            next_N: index of the value after each step, see `_next_values`.
            gamma: discount.
        """
        value, target_N = np.zeros(self._size + 2), return_N
        for _ in range(2 if self._parents and self._shrinkage else 1):
            self._solve(value, self._shares(target_N), reward_N, next_N, gamma)
            target_N = reward_N + gamma * value.take(next_N)
        return target_N, value[: self._finest][self._levels[-1].groups.run_N]

    def _shares(self, target_N: FloatArray) -> list[FloatArray]:
        """w of the groups of each level from 1 on."""
        spreads = [_spread(level, target_N) for level in self._levels]
        ratios = [variance_ratio(coarse, fine) for coarse, fine in pairwise(spreads)]
        return [
            count_G / (count_G + self._shrinkage * ratio)
            for count_G, ratio in zip(self._trajectories, ratios, strict=True)
        ]

    def _solve(
        self, value: FloatArray, shares: list[FloatArray], reward_N: FloatArray, next_N: IntArray, gamma: float
    ) -> None:
        """Repeat the equations until `value`, which is changed in place, is their fixed point."""
        earned_N, discount_N = self._weight_N * reward_N, self._weight_N * gamma
        for _ in range(_SWEEPS):
            new = self._values(earned_N + discount_N * value.take(next_N), shares)
            change = np.abs(new - value[: self._size]).max()
            value[: self._size] = new
            if change <= _TOLERANCE * (1.0 - gamma):
                break

    def _values(self, weighted_N: FloatArray, shares: list[FloatArray]) -> FloatArray:
        """V_K of the groups of level K, then V_0 of the states, from the targets times their weights."""
        means = [sum_G / total_G for sum_G, total_G in zip(self._sums(weighted_N), self._total, strict=True)]
        value = means[0]
        for mean_G, share_G, parent_G in zip(means[1:], shares, self._parents, strict=True):
            value = share_G * mean_G + (1.0 - share_G) * value[parent_G]
        return np.concatenate([value, means[0]])

    def _sums(self, weighted_N: FloatArray) -> list[FloatArray]:
        """Sums over the steps that the groups of each level are compared with, level 0 first."""
        sums = [weighted_N]
        for group_N in (self._levels[-1].groups.run_N, *reversed(self._parents)):
            sums.append(np.bincount(group_N, weights=sums[-1]).astype(np.float64, copy=False))
        return [
            sum_G if level.matches is None else level.matches.sums(sum_G)
            for level, sum_G in zip(self._levels, sums[:0:-1], strict=True)
        ]


def _spread(level: ComparedSteps, value_N: FloatArray) -> Spread:
    """How many steps each step is compared with, and its deviation from their mean."""
    if level.matches is None:
        return Partition.of(level.groups.run_N).spread(value_N)
    statistics, _ = level.statistics(GroupedValues(value_N), ddof=0)
    return Spread(statistics.count_G, statistics.deviation_N)


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


NESTED_TD = Estimator(
    "nested_td",
    nested_td,
    NestedTdOptions,
    label="NestedTD",
    needs=_needs,
    levels=lambda options: Matching.of(options).level_names(options.history_length, "before"),
    largest_gamma=LARGEST_GAMMA,
    follows_memory=False,
    avoids={"response_log_prob": "action_power=0"},
)
