"""ATD: temporal-difference targets over observations, weighted by how little the history matters.

A reference for the benchmarks: `advantage.estimator = "atd:ATD"` with this folder on the import path.

    Y_t = r_t + gamma [(1 - lambda(o')) V(o') + lambda(o') Y_{t+1}],    A_t = Y_t - V(o_t)

V(o) is the mean return of the task's steps with observation o, o' the next step's observation. The return of one
trajectory has a high variance. The mean over all steps with o' has a lower variance, but is biased if o' is an alias of
several states, so that returns depend on the history. lambda(o') is `lambda_min` if contexts explain none of the
variance of the returns at o', and grows to 1 (the trajectory's own return) with the explained share.

Shapes: N steps, O observations. Source: this project; TD(lambda) is Sutton's (1988), variances by the method of moments
(Searle, Casella & McCulloch, Variance Components, 1992, chapter 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Advantages, Estimator, check_choice, check_history, check_number, to_rows
from hgpo.estimators.levels import BATCH_MODES, batch_scaled
from hgpo.estimators.pooled import Spread, moment_terms
from hgpo.grouping import RELATIVE_TOLERANCE, GroupedValues, GroupStatistics, Runs, group_statistics, group_steps
from hgpo.returns import largest_magnitudes, unpenalised_returns
from hgpo.steps import StepBatch

_LEAST_DIVISOR = 0.5
"""One (task, observation) with two contexts adds at least 1 to the divisor of tau^2, so a divisor below one half is the
rounding error of a sum that is 0."""
_SMALLEST = float(np.finfo(np.float64).tiny)  # smaller floats have fewer digits, so relative tolerances do not hold


@dataclass(frozen=True, slots=True)
class AtdOptions:
    """Options of ATD.

    Attributes:
        lambda_min: lambda of an observation whose contexts explain nothing, in [0, 1]; 1 makes all lambdas 1,
            and the advantage is the return minus the mean return of the observation.
        trust: lambda = lambda_min + (1 - lambda_min) · min(1, trust · explained share), so lambda is 1 from a share of
            1 / trust on; at least 0.
        mode: "none" leaves advantages in units of the return, "batch_std" divides all by their population std + 1e-6.
        history_length: number of (observation, action) pairs before the observation in its context, at least 0; with 0
            every lambda is `lambda_min`.
    """

    lambda_min: float = 0.5
    trust: float = 2.0
    mode: str = "none"
    history_length: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        if check_number("lambda_min", self.lambda_min) > 1.0:
            raise ValueError(f"lambda_min must be at most 1, got {self.lambda_min!r}")
        check_number("trust", self.trust)
        check_choice("mode", self.mode, BATCH_MODES)
        check_history(self.history_length)


def atd(batch: StepBatch, gamma: float, options: AtdOptions) -> Advantages:
    """A_t = Y_t - V(o_t) - (penalty_t - mean penalty of the task's steps at o_t), float64[N].

        Y_t = r_t + gamma [(1 - lambda_{t+1}) V(o_{t+1}) + lambda_{t+1} Y_{t+1}];  Y = r at a trajectory's last step

    V is a mean of returns without penalties, so a penalty does not affect earlier steps. With one lambda for all steps,
    Y - V is the sum of (gamma lambda)^l delta_{t+l} with delta = r + gamma V' - V. Rounding errors are set to 0.
    """
    groups = group_steps(
        batch, options.history_length, "observation_action" if options.history_length else "observation"
    )
    row_N = groups.row_N
    seen, context = Runs.from_starts(groups.starts[0]), Runs.from_starts(groups.starts[-1])
    return_N = unpenalised_returns(batch, gamma)
    returns, in_context, penalties = (
        group_statistics(GroupedValues(column_N[row_N]), runs, ddof=0)
        for column_N, runs in ((return_N, seen), (return_N, context), (batch.penalty, seen))
    )
    share_O = explained_shares(_spread(returns, seen), _spread(in_context, context), batch.observation[row_N])
    lambda_O = options.lambda_min + (1.0 - options.lambda_min) * np.minimum(1.0, options.trust * share_O)
    value_N = to_rows(returns.mean_G[seen.run_N], row_N)
    target_N = _targets(batch, value_N, lambda_O[batch.observation], gamma)
    advantage_N: FloatArray = target_N - value_N - to_rows(penalties.deviation_N, row_N)
    rounding_N = np.maximum(RELATIVE_TOLERANCE * largest_magnitudes(batch), _SMALLEST)
    advantage_N[np.abs(advantage_N) <= rounding_N] = 0.0
    return Advantages(batch_scaled(advantage_N, options.mode), return_N - batch.penalty)


def _targets(batch: StepBatch, value_N: FloatArray, lambda_N: FloatArray, gamma: float) -> FloatArray:
    """Y of every step, float64[N] in row order; see `atd`."""
    next_value_N, next_lambda_N = (np.append(column_N[batch.order][1:], 0.0) for column_N in (value_N, lambda_N))
    goes_on_N = np.ones(len(batch))
    goes_on_N[batch.trajectory_start[1:] - 1] = 0.0
    discount_N = gamma * goes_on_N
    taken_N = batch.reward[batch.order] + discount_N * (1.0 - next_lambda_N) * next_value_N
    target_N, factor_N, reach = taken_N.copy(), discount_N * next_lambda_N, 1
    while reach < len(target_N) and factor_N.any():  # by doubling, as in `discounted_suffix_sums`
        target_N[:-reach] += factor_N[:-reach] * target_N[reach:]
        factor_N[:-reach] *= factor_N[reach:]
        factor_N[-reach:] = 0.0
        reach *= 2
    return to_rows(target_N, batch.order)


def _spread(statistics: GroupStatistics, runs: Runs) -> Spread:
    return Spread(statistics.count_G[runs.run_N], statistics.deviation_N)


def explained_shares(seen: Spread, context: Spread, observation_N: IntArray) -> FloatArray:
    """Share of the returns' variance at each observation that contexts explain, tau^2 / (tau^2 + sigma^2), float64[O].

        sigma^2 = [sum (R - m1)^2 + 1e-12] / [sum (1 - 1/n1) + 1e-6]
        tau^2   = max(0, sum (m1 - m0)^2 - sigma^2 sum (1/n1 - 1/n0)) / sum (1 - n1/n0)

    Sums are over the steps of all tasks that saw the observation; n0, m0 are size and mean of the step's (task,
    observation), n1, m1 of its context there. tau^2 is 0 where no task has two contexts of the observation.

    Args:
        seen: size of each step's (task, observation) group, and its deviation from the group's mean.
        context: the same for its context inside that group.
        observation_N: int64[N], the observation of each step, in the same order.
    """
    inside_O, freedom_O, across_O, across_freedom_O, divisor_O = (
        np.bincount(observation_N, weights=term_N) for term_N in moment_terms(seen, context)
    )
    within_O = (inside_O + 1e-12) / (freedom_O + 1e-6)
    excess_O = np.maximum(0.0, across_O - within_O * across_freedom_O)
    between_O = np.where(divisor_O < _LEAST_DIVISOR, 0.0, excess_O / np.maximum(divisor_O, 1e-6))
    share_O: FloatArray = between_O / (between_O + within_O + 1e-12)
    return share_O


ATD = Estimator(
    "atd",
    atd,
    AtdOptions,
    label="ATD",
    needs=lambda options: ("action",) if options.history_length else (),
    follows_memory=False,
)
