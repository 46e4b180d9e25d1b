"""What a step was worth beyond its observation, with the next observation's mean in place of some of the luck there.

Shapes: N steps, G groups (task, observation). Source: TD(lambda), Sutton, Learning to predict by the methods of
temporal differences, 1988.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.advantages import to_rows
from hgpo.estimators.normalise import RELATIVE_TOLERANCE, Compared, GroupStatistics, group_statistics
from hgpo.grouping import Runs
from hgpo.returns import chained_sums, largest_magnitudes
from hgpo.steps import StepBatch

_SMALLEST = float(np.finfo(np.float64).tiny)  # below it a float has too few digits for a share of it to be exact


@dataclass(frozen=True, slots=True, eq=False)
class SeenReturns:
    """The returns of the steps of a task that saw the same observation: their mean is its value.

    Attributes:
        row_N: int64[N], the batch row of each entry in group order.
        seen: the groups (task, observation).
        statistics: of the returns without penalties in each group.

    Example: in a task where two steps saw the hall and earned 1 and 0 afterwards, the value of the hall is 0.5.
    """

    row_N: IntArray
    seen: Runs
    statistics: GroupStatistics

    @classmethod
    def of(cls, return_N: FloatArray, row_N: IntArray, seen: Runs) -> SeenReturns:
        """Compare returns without penalties, float64[N] in the batch's row order."""
        return cls(row_N, seen, group_statistics(Compared(return_N[row_N]), seen, ddof=0))


def temporal_credit(batch: StepBatch, returns: SeenReturns, lambda_N: FloatArray, gamma: float) -> FloatArray:
    """A_t = Y_t - V(o_t) - (penalty_t - mean penalty of the task's steps at o_t), float64[N] in row order.

        Y_t = r_t + gamma [(1 - lambda_{t+1}) V(o_{t+1}) + lambda_{t+1} Y_{t+1}];  Y = r at a trajectory's last step

    V is a mean of returns without penalties, so a penalty never reaches earlier steps; it counts against the others'
    at the same observation. With one lambda for all steps, Y - V is the sum of (gamma lambda)^l delta_{t+l} over
    delta = r + gamma V' - V. What is rounding counts as 0.

    Args:
        batch: the steps.
        returns: what the values are means of.
        lambda_N: float64[N] in row order, in [0, 1]: how far the trajectory's own return is trusted from each step on.
        gamma: discount.
    """
    row_N, seen = returns.row_N, returns.seen
    value_N = to_rows(returns.statistics.mean_G[seen.run_N], row_N)
    penalty_N = group_statistics(Compared(batch.penalty[row_N]), seen, ddof=0).deviation_N
    advantage_N: FloatArray = _targets(batch, value_N, lambda_N, gamma) - value_N - to_rows(penalty_N, row_N)
    rounding_N = np.maximum(RELATIVE_TOLERANCE * largest_magnitudes(batch), _SMALLEST)
    advantage_N[np.abs(advantage_N) <= rounding_N] = 0.0
    return advantage_N


def _targets(batch: StepBatch, value_N: FloatArray, lambda_N: FloatArray, gamma: float) -> FloatArray:
    """Y of every step, float64[N] in row order; see `temporal_credit`."""
    next_value_N, next_lambda_N = (np.append(column_N[batch.order][1:], 0.0) for column_N in (value_N, lambda_N))
    goes_on_N = np.ones(len(batch))
    goes_on_N[batch.trajectory_start[1:] - 1] = 0.0
    discount_N = gamma * goes_on_N
    taken_N = batch.reward[batch.order] + discount_N * (1.0 - next_lambda_N) * next_value_N
    return to_rows(chained_sums(taken_N, discount_N * next_lambda_N), batch.order)
