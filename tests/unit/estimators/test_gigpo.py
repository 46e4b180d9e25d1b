from __future__ import annotations

import math

import numpy as np
import pytest

from hgpo.estimators import Advantages, compute_advantages
from hgpo.steps import StepBatch

# Scores 2 2 | 0; returns at gamma .5: 1 2 | 0; observation s holds returns 1 and 0, t is alone.
BATCH = StepBatch.from_columns(
    group=[0, 0, 0], trajectory=[0, 0, 1], step=[0, 1, 0], observation=["s", "t", "s"], reward=[0.0, 2.0, 0.0]
)


def test_by_hand_without_std() -> None:
    values = compute_advantages(BATCH, "gigpo", 0.5, mode="mean_norm").values
    np.testing.assert_allclose(values, [2 / 3 + 1 / 2, 2 / 3, -4 / 3 - 1 / 2], rtol=1e-12)


def test_by_hand_with_unbiased_std() -> None:
    values = compute_advantages(BATCH, "gigpo", 0.5).values
    episode_std = math.sqrt((4 / 9 + 4 / 9 + 16 / 9) / 2) + 1e-6
    step_std = math.sqrt(1 / 4 + 1 / 4) + 1e-6
    expected = [2 / 3 / episode_std + 1 / 2 / step_std, 2 / 3 / episode_std, -4 / 3 / episode_std - 1 / 2 / step_std]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("weight", [0, 0.25, 3.0])
def test_the_step_term_is_weighted(weight: float) -> None:
    result = compute_advantages(BATCH, "gigpo", 0.5, mode="mean_norm", step_advantage_w=weight)
    np.testing.assert_allclose(result.values, [2 / 3 + weight / 2, 2 / 3, -4 / 3 - weight / 2], rtol=1e-12)
    assert result.levels[0].weight.tolist() == [weight] * 3
    assert result.episode is not None
    np.testing.assert_allclose(result.episode.advantage, [2 / 3, 2 / 3, -4 / 3], rtol=1e-12)


def test_the_step_level_is_hgpo_without_history() -> None:
    gigpo = compute_advantages(BATCH, "gigpo", 0.5).levels[0]
    hgpo = compute_advantages(BATCH, "hgpo", 0.5, history_length=0, ddof=1).levels[0]
    assert gigpo.advantage.tolist() == hgpo.advantage.tolist()
    assert gigpo.size.tolist() == [2, 1, 2]


def similar(threshold: float | None) -> Advantages:
    """Returns 1 and 0 in observations that differ in one character of 13, ratio 24/26."""
    batch = StepBatch.from_columns(
        group=[0, 0],
        trajectory=[0, 1],
        step=[0, 0],
        observation=["you see a cup", "you see a cap"],
        reward=[1.0, 0.0],
    )
    return compute_advantages(batch, "gigpo", mode="mean_norm", similarity_threshold=threshold)


def test_similar_observations_are_one_group() -> None:
    assert similar(24 / 26).levels[0].advantage.tolist() == [0.5, -0.5]
    assert similar(24 / 26).levels[0].size.tolist() == [2, 2]
    assert similar(24 / 26).values.tolist() == [1.0, -1.0]
    for threshold in (None, 0.93, 1):
        assert similar(threshold).levels[0].advantage.tolist() == [0.0, 0.0]
        assert similar(threshold).levels[0].size.tolist() == [1, 1]


@pytest.mark.parametrize("threshold", [0, -0.5, 1.01, float("nan"), "0.9", True])
def test_a_threshold_out_of_range(threshold: float) -> None:
    with pytest.raises(ValueError, match="similarity_threshold must be"):
        similar(threshold)
