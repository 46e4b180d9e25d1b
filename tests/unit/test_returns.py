from __future__ import annotations

import numpy as np
import pytest

from hgpo.returns import (
    discounted_magnitudes,
    discounted_returns,
    discounted_suffix_sums,
    episode_magnitudes,
    episode_returns,
)
from hgpo.steps import StepBatch


def batch_of(rewards: list[list[float]], penalty: list[float] | None = None) -> StepBatch:
    rows = [(name, step, reward) for name, whole in enumerate(rewards) for step, reward in enumerate(whole)]
    return StepBatch.from_columns(
        group=[0] * len(rows),
        trajectory=[name for name, _, _ in rows],
        step=[step for _, step, _ in rows],
        observation=[0] * len(rows),
        reward=[reward for _, _, reward in rows],
        penalty=penalty,
    )


def test_by_hand() -> None:
    batch = batch_of([[1.0, 2.0, 4.0], [0.0, 8.0]])
    assert discounted_returns(batch, 0.5).tolist() == [3.0, 4.0, 4.0, 4.0, 8.0]


def test_gamma_0_and_1() -> None:
    batch = batch_of([[1.0, 2.0, 4.0], [0.0, 8.0]])
    assert discounted_returns(batch, 0.0).tolist() == [1.0, 2.0, 4.0, 0.0, 8.0]
    assert discounted_returns(batch, 1).tolist() == [7.0, 6.0, 4.0, 8.0, 8.0]


def test_a_penalty_touches_its_own_step_only() -> None:
    batch = batch_of([[0.0, 0.0, 1.0]], penalty=[0.0, 0.25, 0.0])
    assert discounted_returns(batch, 0.5).tolist() == [0.25, 0.25, 1.0]
    assert episode_returns(batch).tolist() == [1.0, 0.75, 1.0]


def test_rows_in_any_order() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=[0] * 3, step=[2, 0, 1], observation=[0] * 3, reward=[4.0, 1.0, 2.0]
    )
    assert discounted_returns(batch, 0.5).tolist() == [4.0, 3.0, 4.0]
    assert episode_returns(batch).tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.95, 1.0])
def test_equals_the_recursion(gamma: float) -> None:
    number = np.random.default_rng(1)
    lengths = [1, 2, 3, 7, 8, 9, 64, 65, 1, 200]
    rewards = [number.normal(size=length).tolist() for length in lengths]
    expected: list[float] = []
    for whole in rewards:
        total, backwards = 0.0, []
        for reward in reversed(whole):
            total = reward + gamma * total
            backwards.append(total)
        expected += backwards[::-1]
    np.testing.assert_allclose(discounted_returns(batch_of(rewards), gamma), expected, rtol=1e-12, atol=1e-13)


def test_the_same_future_gives_the_same_bits() -> None:
    """A step's return may not depend on what came before, on where it stands or on how long others are."""
    tail = np.random.default_rng(2).normal(size=37).tolist()
    whole = batch_of([tail, [0.3] * 5 + tail, [1.7] * 300 + tail, [0.0] * 900])
    result = discounted_returns(whole, 0.95)
    ends = np.cumsum([37, 42, 337])
    for end in ends[1:]:
        assert result[end - 37 : end].tolist() == result[:37].tolist()
    assert discounted_returns(batch_of([tail]), 0.95).tolist() == result[:37].tolist()


def test_a_very_long_trajectory() -> None:
    sums = discounted_suffix_sums(np.ones(100_000), np.array([0, 100_000]), 0.9)
    assert sums[0] == pytest.approx(10.0)
    assert sums[-1] == 1.0


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), float("inf"), "0.9", None, True, [0.9]])
def test_gamma_must_be_between_0_and_1(gamma: object) -> None:
    with pytest.raises(ValueError, match="gamma must be a number from 0 to 1"):
        discounted_returns(batch_of([[1.0]]), gamma)  # type: ignore[arg-type]


def test_magnitudes_are_what_was_summed_without_signs() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=[0] * 3, step=[2, 0, 1], observation=[0] * 3, reward=[4.0, 1.0, -2.0],
        penalty=[0.0, 0.5, 0.0],
    )  # fmt: skip
    rows = np.array([1, 2, 0])
    discounted, whole = discounted_magnitudes(batch, 0.5, rows), episode_magnitudes(batch, rows)
    assert discounted is not None
    assert whole is not None
    assert discounted.tolist() == [3.5, 4.0, 4.0]
    assert whole.tolist() == [7.5, 7.0, 7.0]


def test_returns_of_one_sign_are_their_own_magnitudes() -> None:
    batch = batch_of([[-1.0, 0.0], [-2.0]])
    assert discounted_magnitudes(batch, 0.5, np.arange(3)) is None
    assert episode_magnitudes(batch, np.arange(3)) is None
