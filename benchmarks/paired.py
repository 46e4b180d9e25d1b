"""Paired differences: Student's intervals and tests, and p values corrected for their number.

Shape suffixes: S pairs, for example training seeds; M tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import nct, permutation_test
from scipy.stats import t as student

SIGNIFICANT, POWER = 0.05, 0.8


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of paired values, in their units.

    Attributes:
        mean: mean of the differences.
        half: half the width of the 95 % interval of the mean.
        p_value: two-sided p value of the hypothesis that the mean is 0.
        detectable: least true difference that is found in 80 of 100 cases with this number of pairs and this spread, at
            the strictest step of Holm's correction.
    """

    mean: float
    half: float
    p_value: float
    detectable: float

    def __str__(self) -> str:
        """Mean and half of its interval."""
        return f"{self.mean:+.1f} ± {self.half:.1f}"


def paired_difference(value_S: ArrayLike, base_S: ArrayLike, tests: int = 1) -> Difference:
    """The difference value - base, by Student's t with S - 1 degrees of freedom; S is at least 2.

    `tests` is the number of tests in the family, of which only `detectable` depends.
    """
    difference_S = np.asarray(value_S, dtype=np.float64) - np.asarray(base_S, dtype=np.float64)
    count, mean, deviation = len(difference_S), float(difference_S.mean()), float(difference_S.std(ddof=1))
    error = deviation / np.sqrt(count)
    half = float(student.ppf(0.975, count - 1)) * error
    p_value = 2 * float(student.sf(abs(mean) / error, count - 1)) if error else float(mean == 0.0)
    return Difference(mean, half, p_value, error * _shift_found(count - 1, SIGNIFICANT / tests))


def sign_flip_p_value(value_S: ArrayLike, base_S: ArrayLike) -> float:
    """Two-sided p value of the difference of paired values by the exact sign-flip test, which assumes symmetry only.

    It is at least 2 / 2^S: the share of all 2^S assignments of signs to the differences with a sum as large.
    """
    difference_S = np.asarray(value_S, dtype=np.float64) - np.asarray(base_S, dtype=np.float64)
    return float(permutation_test((difference_S,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue)


@cache
def _shift_found(freedom: int, level: float) -> float:
    """The mean, in standard errors, that a two-sided t test at `level` finds in 80 of 100 cases, by the noncentral t.

    `hgpo.evaluation.statistics.detectable` does without scipy and knows one test only.
    """
    critical = student.ppf(1 - level / 2, freedom)
    return float(brentq(lambda shift: nct.sf(critical, freedom, shift) - POWER, 0.0, 10.0 + 4.0 * critical))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values of a family of tests, corrected so that the chance of any false finding stays below the level.

        adjusted of rank i = max over j <= i of min(1, (m - j + 1) p of rank j)

    Source: Holm, A simple sequentially rejective multiple test procedure, 1979.

    Example: `holm([0.01, 0.04, 0.03])` -> `[0.03, 0.06, 0.06]`.
    """
    p_M = np.asarray(p_values, dtype=np.float64)
    order_M = np.argsort(p_M, kind="stable")
    scaled_M = np.minimum(np.arange(len(p_M), 0, -1) * p_M[order_M], 1.0)
    adjusted_M = np.empty_like(p_M)
    adjusted_M[order_M] = np.maximum.accumulate(scaled_M)
    return adjusted_M.tolist()
