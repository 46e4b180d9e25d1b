from __future__ import annotations

import numpy as np
import pytest

from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages
from hgpo.returns import discounted_returns
from hgpo.steps import StepBatch

# Task 0: scores 6 (two steps), 0, 0. Task 1: one trajectory.
BATCH = StepBatch.from_columns(
    group=[0, 0, 0, 0, 1],
    trajectory=[0, 0, 1, 2, 3],
    step=[0, 1, 0, 0, 0],
    observation=["s"] * 5,
    reward=[0.0, 6.0, 0.0, 0.0, 9.0],
    value=[1.0, 2.0, 3.0, -1.0, 9.0],
    penalty=[0.0, 0.0, 0.0, 0.5, 0.0],
)


def values(estimator: str, gamma: float = 0.5, **options: float | str) -> FloatArray:
    return compute_advantages(BATCH, estimator, gamma, **options).values


def test_dr_grpo() -> None:
    """The scores' mean is (6 + 0 - 0.5) / 3."""
    np.testing.assert_allclose(values("dr_grpo"), np.array([25, 25, -11, -14, 0]) / 6, rtol=1e-12)
    assert values("dr_grpo", count="step").tolist() == values("grpo", count="step", mode="mean_norm").tolist()


def test_rloo() -> None:
    np.testing.assert_allclose(values("rloo"), [6.25, 6.25, -2.75, -3.5, 0.0], rtol=1e-12)


def test_rloo_leaves_the_whole_trajectory_out() -> None:
    """a's scores -1 and 0 are compared with b's 0, and b's with their mean: a's bad step says nothing for its other."""
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=["a", "a", "b"], step=[0, 1, 0], observation=["s"] * 3, reward=[0.0] * 3,
        penalty=[1.0, 0.0, 0.0],
    )  # fmt: skip
    np.testing.assert_allclose(compute_advantages(batch, "rloo").values, [-1.0, 0.0, 0.5], rtol=1e-12)


def test_reinforce() -> None:
    """Returns 3 6 0 -0.5 9."""
    expected = np.array([3.0, 6.0, 0.0, -0.5, 9.0]) - 3.5
    np.testing.assert_allclose(values("reinforce"), expected, rtol=1e-12)
    scaled = expected / (np.sqrt(np.mean(expected**2)) + 1e-6)
    np.testing.assert_allclose(values("reinforce", mode="mean_std_norm"), scaled, rtol=1e-12)


def test_gae_by_hand() -> None:
    """delta: 0 + 1 - 1 = 0, 6 - 2 = 4, 0 - 3 = -3, 0 + 1 = 1, 9 - 9 = 0."""
    np.testing.assert_allclose(values("gae", gae_lambda=0.5), [1.0, 4.0, -3.0, 0.5, 0.0], rtol=1e-12)
    np.testing.assert_allclose(values("gae", gae_lambda=0.0), [0.0, 4.0, -3.0, 0.5, 0.0], rtol=1e-12)


def test_gae_with_lambda_1_is_the_return_minus_the_value() -> None:
    assert BATCH.value is not None
    np.testing.assert_allclose(values("gae", 0.9, gae_lambda=1.0), discounted_returns(BATCH, 0.9) - BATCH.value)


def test_gae_errors() -> None:
    without = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[0.0])
    with pytest.raises(ValueError, match="column 'value'"):
        compute_advantages(without, "gae")
    with pytest.raises(ValueError, match="gae_lambda must be at most 1"):
        values("gae", gae_lambda=1.5)


def test_rloo_takes_no_options() -> None:
    with pytest.raises(ValueError, match="unknown option 'mode' for estimator 'rloo'"):
        values("rloo", mode="mean_norm")
