"""TD(lambda) with observation means as values, and partitions of steps into cells (group, action).

Shapes: N steps, G groups (task, observation), C parts. Source: TD(lambda), Sutton, Learning to predict by the methods
of temporal differences, 1988.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import to_rows
from hgpo.estimators.pooled import Spread
from hgpo.grouping import RELATIVE_TOLERANCE, GroupedValues, GroupStatistics, Runs, group_statistics
from hgpo.returns import largest_magnitudes, linear_recurrence
from hgpo.steps import StepBatch

_SMALLEST = float(np.finfo(np.float64).tiny)  # below it a float has too few digits for a share of it to be exact


@dataclass(frozen=True, slots=True, eq=False)
class ObservationValues:
    """Returns of a task's steps by observation; the mean over an observation's steps is its value.

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
    def of(cls, return_N: FloatArray, row_N: IntArray, seen: Runs) -> ObservationValues:
        """Compare returns without penalties, float64[N] in the batch's row order."""
        return cls(row_N, seen, group_statistics(GroupedValues(return_N[row_N]), seen, ddof=0))


def temporal_credit(batch: StepBatch, returns: ObservationValues, lambda_N: FloatArray, gamma: float) -> FloatArray:
    """A_t = Y_t - V(o_t) - (penalty_t - mean penalty of the task's steps at o_t), float64[N] in row order.

        Y_t = r_t + gamma [(1 - lambda_{t+1}) V(o_{t+1}) + lambda_{t+1} Y_{t+1}];  Y = r at a trajectory's last step

    V is a mean of returns without penalties, so a penalty never reaches earlier steps; it is compared with the mean
    penalty at the same observation. With one lambda for all steps, Y - V is the sum of (gamma lambda)^l delta_{t+l}
    over delta = r + gamma V' - V. What is rounding counts as 0.

    Args:
        batch: the steps.
        returns: the returns that the values average.
        lambda_N: float64[N] in row order, in [0, 1]: weight of the trajectory's own return from each step on.
        gamma: discount.
    """
    row_N, seen = returns.row_N, returns.seen
    value_N = to_rows(returns.statistics.mean_G[seen.run_N], row_N)
    penalty_N = group_statistics(GroupedValues(batch.penalty[row_N]), seen, ddof=0).deviation_N
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
    return to_rows(linear_recurrence(taken_N, discount_N * next_lambda_N), batch.order)


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A partition of the steps, into groups or into cells.

    Attributes:
        part_N: int64[N], the part of each step.
        count_N: float64[N], how many steps that part has.

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
        """Deviations from the parts' means; what is rounding counts as 0."""
        deviation_N = value_N - self.means(value_N)
        deviation_N[np.abs(deviation_N) <= RELATIVE_TOLERANCE * np.abs(value_N).max()] = 0.0
        return Spread(self.count_N, deviation_N)


def action_cells(runs: Runs, action_N: IntArray) -> Partition:
    """The parts (group, action) of one level; `action_N` is in group order."""
    pair_N = runs.run_N * (int(action_N.max()) + 1) + action_N
    return Partition.of(np.unique(pair_N, return_inverse=True)[1].reshape(-1))
