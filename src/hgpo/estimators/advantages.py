"""The carriers an estimator returns: `Advantages` for the batch, `Level` for one group level of it.

Shapes: N steps, G groups of one level. Arrays suffixed _N are in group order, public columns in the batch's row order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators.normalise import GroupStatistics, group_statistics
from hgpo.grouping import Runs


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One level of groups and what it contributed: `sum over levels of weight * advantage` is the batch's advantage.

    The public columns (properties) are [N] in the batch's row order. They are worked out on every access: a batch of
    many steps and levels could not hold them all, and most callers want none.

    Attributes:
        k: context length of the level, None for the episode level (groups = tasks).
        row_N, starts_N: the batch row of each entry in group order, and where groups begin.
        value_N: what is compared (return or score). ddof, share_N: see `group_statistics`.
        advantage_N, weight_N, used_N: the result; weight_N may be one number for all steps.
        present_N: False where the step has no group at this level (None: every step has one).

    Example: two steps share a context with returns 1 and 3, a third step is alone with return 5 (ddof 0):
    group [0, 0, 1], size [2, 2, 1], mean [2, 2, 5], std [1, 1, 0], advantage [-1, 1, 0], used [True, True, False].
    """

    k: int | None
    row_N: IntArray
    starts_N: BoolArray
    value_N: FloatArray
    ddof: int
    advantage_N: FloatArray
    weight_N: FloatArray | float
    used_N: BoolArray
    present_N: BoolArray | None = None
    share_N: FloatArray | None = None

    @property
    def group(self) -> IntArray:
        """Group number of each step, int64[N]; -1 where the step has no group at this level."""
        return self._to_rows(self._runs().run_N, absent=-1)

    @property
    def size(self) -> IntArray:
        """Number of steps in the group, int64[N]; 0 where there is none."""
        runs = self._runs()
        return self._to_rows(runs.size_G[runs.run_N], absent=0)

    @property
    def mean(self) -> FloatArray:
        """Mean of the group, the step itself included, float64[N]; NaN where there is no group."""
        return self._to_rows(self._statistics().mean_G[self._runs().run_N], absent=np.nan)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of the group, float64[N], with the estimator's ddof; NaN where there is no group."""
        return self._to_rows(self._statistics().std_G[self._runs().run_N], absent=np.nan)

    @property
    def advantage(self) -> FloatArray:
        """Advantage inside the group, float64[N]; 0 where there is no group or no other member."""
        return self._to_rows(self.advantage_N)

    @property
    def weight(self) -> FloatArray:
        """Weight the advantage was multiplied by, float64[N]."""
        if isinstance(self.weight_N, float):
            return np.full(len(self.row_N), self.weight_N)
        return self._to_rows(self.weight_N)

    @property
    def used(self) -> BoolArray:
        """Whether the level had something to say about the step, bool[N]: a group, with others in it, not dropped."""
        return self._to_rows(self.used_N)

    def weighted(self, weight_N: FloatArray | float, used_N: BoolArray | None = None) -> Level:
        """Return the level with other weights (float64[N] in group order or one number) and, if given, `used` marks."""
        return replace(self, weight_N=weight_N, used_N=self.used_N if used_N is None else used_N)

    def _runs(self) -> Runs:
        return Runs.from_starts(self.starts_N)

    def _statistics(self) -> GroupStatistics:
        return group_statistics(self.value_N, self._runs(), self.ddof, self.share_N)

    def _to_rows(self, column_N: NDArray[Any], absent: float | None = None) -> NDArray[Any]:
        if absent is not None and self.present_N is not None:
            column_N = np.where(self.present_N, column_N, absent)
        return to_rows(column_N, self.row_N)


@dataclass(frozen=True, slots=True, eq=False)
class Advantages:
    """Advantage of every step of a batch.

    Attributes:
        values: float64[N] in the batch's row order. Units of the return for "mean_norm", else standard deviations.
        returns: float64[N], discounted step returns minus penalties.
        levels: the step-level groups by context length (empty for estimators without), `levels[k].k == k`.
        episode: the episode level where the estimator has one.

    Example: `compute_advantages(batch, history_length=1).levels[1].size` is the size of each step's level-1 group.
    """

    values: FloatArray
    returns: FloatArray
    levels: tuple[Level, ...] = ()
    episode: Level | None = None


def to_rows(column_N: NDArray[Any], row_N: IntArray) -> NDArray[Any]:
    """Lay out a column in the batch's row order: result[row_N[i]] = column_N[i]."""
    result_N = np.empty_like(column_N)
    result_N[row_N] = column_N
    return result_N


def weighted_sum(levels: tuple[Level, ...]) -> FloatArray:
    """Sum of weight * advantage over levels that share one group order, float64[N] in the batch's row order."""
    total_N = np.zeros(len(levels[0].row_N))  # starts from +0.0, so a sum of nothing is never -0.0
    for level in levels:
        total_N += level.weight_N * level.advantage_N
    return to_rows(total_N, levels[0].row_N)
