"""Intervals, tests and their correction, by hand and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from paired import holm, paired_difference


def test_a_difference_by_hand() -> None:
    """Differences 0, 2, 4, 6: std 2.582, error 1.291, t = 3 / 1.291 = 2.324 with 3 degrees of freedom."""
    found = paired_difference([1, 4, 7, 10], [1, 2, 3, 4])
    assert (found.mean, found.half) == pytest.approx((3, 3.182 * 1.291), rel=1e-3)
    assert found.p_value == pytest.approx(0.1027, abs=1e-3)
    assert str(found) == "+3.0 ± 4.1"


def test_equal_values() -> None:
    assert paired_difference([1, 2], [1, 2]).p_value == 1
    assert paired_difference([2, 3], [1, 2]).p_value == 0


def test_the_p_value_is_005_where_the_interval_ends_at_0() -> None:
    found = paired_difference([3, 5, 8], [0, 0, 0])
    moved = paired_difference(np.array([3, 5, 8]) - found.mean + found.half, [0, 0, 0])
    assert moved.p_value == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(("pairs", "tests"), [(10, 1), (3, 1), (3, 3), (7, 21)])
def test_the_detectable_difference_is_found_in_80_of_100_cases(pairs: int, tests: int) -> None:
    rng = np.random.default_rng(0)
    # the least difference for a true deviation of 1, which that of the sample estimates
    sample = np.arange(pairs) / np.arange(pairs).std(ddof=1)
    least = paired_difference(sample, np.zeros(pairs), tests).detectable
    found = [paired_difference(rng.normal(least, 1.0, pairs), np.zeros(pairs)).p_value for _ in range(4000)]
    assert np.mean(np.array(found) * tests < 0.05) == pytest.approx(0.8, abs=0.02)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def test_a_family_of_true_hypotheses_has_a_false_finding_in_5_of_100_cases() -> None:
    rng = np.random.default_rng(1)
    any_found = [min(holm(rng.random(10))) < 0.05 for _ in range(4000)]
    assert np.mean(any_found) == pytest.approx(0.05, abs=0.012)
