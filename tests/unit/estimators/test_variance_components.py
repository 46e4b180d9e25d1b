"""Variance components: by hand, and unbiased on simulated effects."""

from __future__ import annotations

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.pooled import PRIOR_STEPS, Blocks, Spread, shrinkage, variance_components


def spread(value_N: FloatArray, group_N: IntArray) -> Spread:
    count = np.bincount(group_N)
    mean = np.bincount(group_N, weights=value_N) / count
    return Spread(count[group_N].astype(float), value_N - mean[group_N])


def blocks(starts: list[int], tasks: list[int], states: list[int]) -> Blocks:
    return Blocks(np.array(starts), np.array(tasks), np.array(states))


def test_by_hand() -> None:
    value = np.array([3.0, 1.0, -1.0, -3.0])
    found = variance_components(
        spread(value, np.zeros(4, dtype=np.int64)), spread(value, np.array([0, 0, 1, 1])), blocks([0], [0], [0])
    )
    assert found.within_G.tolist() == [2.0]
    assert found.between_G.tolist() == [7.0]
    assert found.known_G.tolist() == [True]


def test_states_lean_on_the_batch() -> None:
    """State 0 as above; state 1 has no difference between its groups. Both are pulled to the batch's estimate."""
    value = np.array([3.0, 1.0, -1.0, -3.0, 1.0, -1.0, 1.0, -1.0])
    parent, child = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    found = variance_components(spread(value, parent), spread(value, child), blocks([0, 4], [0, 0], [0, 1]))
    batch = (16 - 2 * 2) / 4
    weight = 2 + PRIOR_STEPS
    np.testing.assert_allclose(found.within_G, [2.0, 2.0])
    np.testing.assert_allclose(
        found.between_G, [(16 - 2 + PRIOR_STEPS * batch) / weight, (PRIOR_STEPS * batch - 2) / weight]
    )


def test_the_own_task_can_be_left_out() -> None:
    value = np.array([3.0, 1.0, -1.0, -3.0, 1.0, -1.0, 1.0, -1.0])
    parent, child = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    found = variance_components(
        spread(value, parent), spread(value, child), blocks([0, 4], [0, 1], [0, 0]), leave_task_out=True
    )
    np.testing.assert_allclose(found.within_G, [2.0, 2.0])
    np.testing.assert_allclose(found.between_G, [0.0, 7.0])  # task 0 learns from task 1 and the other way round


def test_variances_below_the_rounding_of_the_own_task_are_0() -> None:
    value = np.array([3e4, 1e4, -1e4, -3e4, 0.3, 0.1, -0.1, -0.1])
    parent, child = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 2, 2, 3, 3])
    found = variance_components(
        spread(value, parent), spread(value, child), blocks([0, 4], [0, 1], [0, 0]), leave_task_out=True
    )
    assert (found.within_G[0], found.between_G[0]) == (0.0, 0.0)


def test_singletons_know_nothing() -> None:
    value = np.array([3.0, -1.0])
    found = variance_components(
        spread(value, np.zeros(2, dtype=np.int64)), spread(value, np.arange(2)), blocks([0], [0], [0])
    )
    assert not found.known_G.any()
    assert found.between_G.tolist() == [0.0]


def test_estimates_are_unbiased() -> None:
    """1,000 parents with groups of 1 to 4 members: within 5 standard errors of the truth."""
    number = np.random.default_rng(0)
    sizes = number.integers(1, 5, size=5000)
    child = np.repeat(np.arange(5000), sizes)
    parent = child // 5
    value = 2.0 * number.standard_normal(5000)[child] + number.standard_normal(len(child))
    start = np.flatnonzero(np.diff(parent, prepend=-1))
    found = variance_components(
        spread(value, parent), spread(value, child), Blocks(start, np.arange(1000), np.zeros(1000, dtype=np.int64))
    )
    np.testing.assert_allclose(found.within_G[0], 1.0, atol=0.1)
    np.testing.assert_allclose(found.between_G[0], 4.0, atol=0.45)


def test_shrinkage_limits() -> None:
    count, nothing = np.array([1.0, 4.0]), np.zeros(2)
    assert shrinkage(count, nothing, nothing).tolist() == [0.0, 0.0]
    assert shrinkage(count, np.ones(2), nothing).tolist() == [1.0, 1.0]
    assert shrinkage(count, np.ones(2), np.ones(2)).tolist() == [0.5, 0.8]
