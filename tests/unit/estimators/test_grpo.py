from __future__ import annotations

import math

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

# Trajectory 0 has three steps and score 1, trajectory 1 one step and score 0; task 1 has one trajectory.
BATCH = StepBatch.from_columns(
    group=[0, 0, 0, 0, 1],
    trajectory=[0, 0, 0, 1, 2],
    step=[0, 1, 2, 0, 0],
    observation=["s"] * 5,
    reward=[0.0, 0.0, 1.0, 0.0, 7.0],
)


def test_each_trajectory_counts_once() -> None:
    values = compute_advantages(BATCH, "grpo", mode="mean_norm").values
    np.testing.assert_allclose(values, [0.5, 0.5, 0.5, -0.5, 0.0], rtol=1e-12)
    scaled = compute_advantages(BATCH, "grpo").values
    np.testing.assert_allclose(scaled, values / (math.sqrt(0.5) + 1e-6), rtol=1e-12)


def test_each_step_counts_once() -> None:
    values = compute_advantages(BATCH, "grpo", mode="mean_norm", count="step").values
    np.testing.assert_allclose(values, [0.25, 0.25, 0.25, -0.75, 0.0], rtol=1e-12)
    scaled = compute_advantages(BATCH, "grpo", count="step").values
    np.testing.assert_allclose(scaled, values / (0.5 + 1e-6), rtol=1e-12)


def test_one_trajectory_has_nothing_to_compare_even_with_penalties() -> None:
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=[0, 0], step=[0, 1], observation=["s", "s"], reward=[0.0, 1.0], penalty=[0.1, 0.0]
    )
    for count in ("trajectory", "step"):
        assert compute_advantages(batch, "grpo", count=count).values.tolist() == [0.0, 0.0]


def test_a_penalty_counts_in_its_own_step() -> None:
    """Scores .9 1 | 0 0: each trajectory's share of the mean is the average over its steps, .95 and 0."""
    batch = StepBatch.from_columns(
        group=[0] * 4,
        trajectory=[0, 0, 1, 1],
        step=[0, 1, 0, 1],
        observation=["s"] * 4,
        reward=[0.0, 1.0, 0.0, 0.0],
        penalty=[0.1, 0.0, 0.0, 0.0],
    )
    values = compute_advantages(batch, "grpo", mode="mean_norm").values
    np.testing.assert_allclose(values, [0.425, 0.525, -0.475, -0.475], rtol=1e-12)


def test_penalties_alone_do_not_explode() -> None:
    """Two failed trajectories with one penalised step each: the std is the penalties' own."""
    batch = StepBatch.from_columns(
        group=[0] * 4,
        trajectory=[0, 0, 1, 1],
        step=[0, 1, 0, 1],
        observation=["s"] * 4,
        reward=[0.0] * 4,
        penalty=[0.1, 0.0, 0.1, 0.0],
    )
    values = compute_advantages(batch, "grpo").values
    np.testing.assert_allclose(values, np.array([-1, 1, -1, 1]) / math.sqrt(2), rtol=1e-4)


def test_the_discount_only_enters_the_returns() -> None:
    result = compute_advantages(BATCH, "grpo", gamma=0.5)
    assert result.returns.tolist() == [0.25, 0.5, 1.0, 0.0, 7.0]
    assert result.values.tolist() == compute_advantages(BATCH, "grpo", gamma=1.0).values.tolist()
    assert result.levels == ()


def test_the_episode_level() -> None:
    episode = compute_advantages(BATCH, "grpo", mode="mean_norm").episode
    assert episode is not None
    assert episode.group.tolist() == [0, 0, 0, 0, 1]
    assert episode.mean.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5, 7.0])
    assert episode.used.tolist() == [True, True, True, True, False]
    assert episode.weight.tolist() == [1.0] * 5
