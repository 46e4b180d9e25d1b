"""Partitions of the steps into cells: a group's steps that took the same action.

Shapes: N steps in group order, C parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.normalise import RELATIVE_TOLERANCE
from hgpo.estimators.variance_components import Spread
from hgpo.grouping import Runs


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A partition of the steps, into groups or into cells.

    Attributes:
        part_N: int64[N], the part of each step.
        count_N: float64[N], how many steps that part has.

    Example: three steps of one group, two of which took the same action: part_N [0, 0, 1], count_N [2, 2, 1].
    """

    part_N: IntArray
    count_N: FloatArray

    @classmethod
    def of(cls, part_N: IntArray) -> Parts:
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


def action_cells(runs: Runs, action_N: IntArray) -> Parts:
    """The parts (group, action) of one level; `action_N` is in group order."""
    pair_N = runs.run_N * (int(action_N.max()) + 1) + action_N
    return Parts.of(np.unique(pair_N, return_inverse=True)[1].reshape(-1))
