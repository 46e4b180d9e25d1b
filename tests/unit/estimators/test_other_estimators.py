from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages
from hgpo.estimators.gae import value_targets
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


def test_gae_is_normalised_over_the_batch() -> None:
    centred = np.array([1.0, 4.0, -3.0, 0.5, 0.0]) - 0.5
    np.testing.assert_allclose(values("gae", gae_lambda=0.5, mode="mean_norm"), centred, rtol=1e-12)
    scaled = centred / (np.sqrt(np.sum(centred**2) / 4) + 1e-6)
    np.testing.assert_allclose(values("gae", gae_lambda=0.5, mode="mean_std_norm"), scaled, rtol=1e-12)
    one = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[1.0], value=[0.0])
    assert compute_advantages(one, "gae", mode="mean_std_norm").values.tolist() == [0.0]


def test_gae_with_lambda_1_is_the_return_minus_the_value() -> None:
    assert BATCH.value is not None
    np.testing.assert_allclose(values("gae", 0.9, gae_lambda=1.0), discounted_returns(BATCH, 0.9) - BATCH.value)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    gamma=st.floats(0.0, 1.0),
    gae_lambda=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_gae_and_its_targets_follow_the_recursion(
    lengths: list[int], gamma: float, gae_lambda: float, seed: int
) -> None:
    """A_t = delta_t + gamma lambda A_{t+1}, from a trajectory's end, which may be cut by a time limit."""
    rng = np.random.default_rng(seed)
    trajectory = np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    last = step == np.repeat(lengths, lengths) - 1
    reward, value = rng.normal(size=(2, len(step)))
    bootstrap = np.where(last & (rng.random(len(step)) < 0.5), rng.normal(size=len(step)), 0.0)
    penalty = rng.random(len(step))
    order = rng.permutation(len(step))
    columns = {"trajectory": trajectory, "step": step, "observation": step, "reward": reward, "value": value}
    columns |= {"bootstrap": bootstrap, "penalty": penalty}
    shuffled = {name: column[order] for name, column in columns.items()}
    batch = StepBatch.from_columns(group=np.zeros(len(step), dtype=int), **shuffled)
    expected = np.zeros(len(step))
    for row in reversed(range(len(step))):
        following, further = (bootstrap[row], 0.0) if last[row] else (value[row + 1], expected[row + 1])
        expected[row] = reward[row] + gamma * following - value[row] + gamma * gae_lambda * further
    found = compute_advantages(batch, "gae", gamma=gamma, gae_lambda=gae_lambda).values
    np.testing.assert_allclose(found, (expected - penalty)[order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(value_targets(batch, gamma, gae_lambda), (expected + value)[order], atol=1e-12)


def test_a_critic_in_place_of_the_means_of_groups() -> None:
    """Returns 3 6 0 -0.5 9 minus values 1 2 3 -1 9, at every level; no step is alone with its value."""
    expected = np.array([2.0, 4.0, -3.0, 0.5, 0.0])
    result = compute_advantages(BATCH, "hgpo", 0.5, baseline="critic", mode="mean_norm", missing="renormalize")
    np.testing.assert_allclose(result.values, expected, rtol=1e-12)
    assert all(level.used.all() for level in result.levels)
    root = np.sqrt(np.mean(expected**2))
    np.testing.assert_allclose(values("hgpo", baseline="critic", epsilon=0.5), expected / (root + 0.5), rtol=1e-12)
    term = values("gigpo", baseline="critic", step_advantage_w=2.0) - values("gigpo", step_advantage_w=0.0)
    np.testing.assert_allclose(term, 2.0 * expected / (root + 1e-6), rtol=1e-9)


def test_a_critic_without_error_does_not_divide_by_nothing() -> None:
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=["s", "s"], reward=[1, 2], value=[1, 2]
    )
    assert compute_advantages(batch, "hgpo", baseline="critic", epsilon=0).values.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ["dr_grpo", "gigpo", "grpo", "hgpo", "mixed_effects", "reinforce", "rloo"])
def test_returns_that_penalties_make_equal_are_equal(estimator: str) -> None:
    """100000.1 - 100000 is not .1 in floating point; dividing the difference by its std would give +-1."""
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=["s", "s"], action=["go", "go"],
        reward=[100000.1, 0.1], penalty=[100000.0, 0.0],
    )  # fmt: skip
    mode = {"mode": "mean_std_norm"} if estimator == "reinforce" else {}
    assert compute_advantages(batch, estimator, **mode).values.tolist() == [0.0, 0.0]


def test_lambda_is_from_0_to_1() -> None:
    with pytest.raises(ValueError, match=r"gae_lambda must be from 0 to 1, got 1\.5"):
        values("gae", gae_lambda=1.5)


def test_rloo_takes_no_options() -> None:
    with pytest.raises(ValueError, match="unknown option 'mode' for estimator 'rloo'"):
        values("rloo", mode="mean_norm")
