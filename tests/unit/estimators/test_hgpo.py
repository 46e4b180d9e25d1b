from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages, parse_options
from hgpo.estimators.base import Advantages
from hgpo.estimators.hgpo import HgpoOptions
from hgpo.steps import StepBatch

# Three trajectories of one task, gamma 0.5. Returns: a .5 1, b 0 0, c .25 .5 1.
KITCHENS = StepBatch.from_columns(
    group=["task"] * 7,
    trajectory=["a", "a", "b", "b", "c", "c", "c"],
    step=[0, 1, 0, 1, 0, 1, 2],
    observation=["hall", "kitchen", "hall", "kitchen", "hall", "garden", "kitchen"],
    reward=[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
)


def run(batch: StepBatch = KITCHENS, gamma: float = 0.5, **options: Any) -> Advantages:
    return compute_advantages(batch, "hgpo", gamma, **({"history_length": 1, "mode": "mean_norm"} | options))


def close(actual: FloatArray, *expected: float) -> None:
    np.testing.assert_allclose(actual, expected, atol=2e-6)


def test_paper_by_hand() -> None:
    result = run()
    close(result.returns, 0.5, 1, 0, 0, 0.25, 0.5, 1)
    close(result.levels[0].advantage, 1 / 4, 1 / 3, -1 / 4, -2 / 3, 0, 0, 1 / 3)
    close(result.levels[1].advantage, 1 / 4, 1 / 2, -1 / 4, -1 / 2, 0, 0, 0)
    close(result.values, 1 / 4, 4 / 9, -1 / 4, -5 / 9, 0, 0, 1 / 9)
    assert [level.k for level in result.levels] == [0, 1]
    assert result.episode is None


def test_level_columns() -> None:
    first, second = run().levels
    assert first.size.tolist() == [3, 3, 3, 3, 3, 1, 3]
    assert second.size.tolist() == [3, 2, 3, 2, 3, 1, 1]
    close(first.mean, 1 / 4, 2 / 3, 1 / 4, 2 / 3, 1 / 4, 1 / 2, 2 / 3)
    close(second.std, math.sqrt(1 / 24), 1 / 2, math.sqrt(1 / 24), 1 / 2, math.sqrt(1 / 24), 0, 0)
    assert second.used.tolist() == [True, True, True, True, True, False, False]
    assert len(set(second.group.tolist())) == 4
    close(second.weight, *[2 / 3] * 7)


def test_verl_agent_by_hand() -> None:
    result = run(preset="verl-agent")
    close(result.values, 1 / 4, 13 / 30, -1 / 4, -17 / 30, 0, 0, 1 / 3)
    second = result.levels[1]
    assert second.group[[0, 2, 4]].tolist() == [-1, -1, -1]
    assert second.size.tolist() == [0, 2, 0, 2, 0, 1, 1]
    assert np.isnan(second.mean[[0, 2, 4]]).all()
    close(second.weight, 0, 3 / 5, 0, 3 / 5, 0, 0, 0)
    # Row 4 is the mean of its only group: dropped, not merely 0.
    assert result.levels[0].used.tolist() == [True, True, True, True, False, False, True]


def test_standard_deviations() -> None:
    """Level 0 of the kitchen: returns 1 0 1, population std sqrt(2)/3, unbiased std sqrt(1/3)."""
    population = run(history_length=0, mode="mean_std_norm").values
    unbiased = run(history_length=0, mode="mean_std_norm", ddof=1).values
    assert population[1] == pytest.approx((1 / 3) / (math.sqrt(2) / 3 + 1e-6), rel=1e-12)
    assert unbiased[1] == pytest.approx((1 / 3) / (math.sqrt(1 / 3) + 1e-6), rel=1e-12)
    wide = run(history_length=0, mode="mean_std_norm", epsilon=1.0).values
    assert wide[1] == pytest.approx((1 / 3) / (math.sqrt(2) / 3 + 1.0), rel=1e-12)


def test_missing_levels() -> None:
    """Row 6 has others at level 0 (advantage 1/3) and nobody at level 1; row 4 is the mean of both its groups."""
    assert run(missing="zero").values[6] == pytest.approx(1 / 9)
    assert run(missing="renormalize").values[6] == pytest.approx(1 / 3, rel=1e-12)
    assert run(missing="drop_zero").values[6] == pytest.approx(1 / 3, rel=2e-6)
    assert run(missing="renormalize").levels[0].used[4]
    assert not run(missing="drop_zero").levels[0].used[4]


def test_drop_zero_takes_the_weight_from_a_level_at_its_mean() -> None:
    """The last step of trajectory 0 (return 1) is the mean of its level-0 group (0 1 2) but not of level 1 (0 1)."""
    batch = StepBatch.from_columns(
        group=[0] * 6,
        trajectory=[0, 0, 1, 1, 2, 2],
        step=[0, 1] * 3,
        observation=["u", "s", "u", "s", "v", "s"],
        reward=[0.0, 1.0, 0.0, 0.0, 0.0, 2.0],
    )
    assert run(batch, missing="renormalize").values[1] == pytest.approx(2 / 3 * 0.5)
    assert run(batch, missing="drop_zero").values[1] == pytest.approx(0.5, rel=2e-6)


def test_early_steps() -> None:
    """Level 1 of the hall steps: the truncated groups repeat level 0, dropped ones are missing."""
    assert run(early="truncate").values[0] == pytest.approx(1 / 4)
    assert run(early="drop", missing="zero").values[0] == pytest.approx(1 / 3 * 1 / 4)
    assert run(early="drop", missing="renormalize").values[0] == pytest.approx(1 / 4)


def test_weights_grow_with_alpha() -> None:
    close(run(length_weight_alpha=2.0).levels[1].weight, *[4 / 5] * 7)
    close(run(length_weight_alpha=0.0).levels[1].weight, *[1 / 2] * 7)
    close(run(length_weight_alpha=1.0, length_offset=2).levels[1].weight, *[3 / 5] * 7)


def test_leave_one_out() -> None:
    """The kitchen's other returns: for row 1 the mean of 0 and 1, for row 3 the mean of 1 and 1."""
    close(run(history_length=0, baseline="leave_one_out").values, 3 / 8, 1 / 2, -3 / 8, -1, 0, 0, 1 / 2)


def test_base_group_by_hand() -> None:
    """Scores 1 1 0 0 1 1 1 (mean 5/7) join as one more item of length 1, beside levels of length 2 and 3."""
    result = run(preset="verl-agent", base_group=True)
    assert result.episode is not None
    assert result.episode.k is None
    close(result.episode.advantage, 2 / 7, 2 / 7, -5 / 7, -5 / 7, 2 / 7, 2 / 7, 2 / 7)
    expected = (1 * 2 / 7 + 2 * 1 / 3 + 3 * 1 / 2) / 6
    assert result.values[1] == pytest.approx(expected, rel=2e-6)
    assert result.values[5] == pytest.approx(2 / 7, rel=2e-6)
    assert [level.k for level in result.levels] == [0, 1]


def test_base_group_leaves_the_whole_trajectory_out() -> None:
    """a has four steps and score 4, b one step and score 0: each is compared with the other alone."""
    batch = StepBatch.from_columns(
        group=[0] * 5, trajectory=["a"] * 4 + ["b"], step=[0, 1, 2, 3, 0], observation=list("stuvs"),
        reward=[1.0, 1.0, 1.0, 1.0, 0.0],
    )  # fmt: skip
    result = compute_advantages(batch, "hgpo", mode="mean_norm", base_group=True, baseline="leave_one_out")
    assert result.episode is not None
    close(result.episode.advantage, 4, 4, 4, 4, -4)


def test_returns_that_cancel_to_0_are_equal() -> None:
    """a earns .1 + .2 - .3, which is 5.6e-17 in floating point, c nothing: level 1 has nothing to tell them apart."""
    batch = StepBatch.from_columns(
        group=["task"] * 11,
        trajectory=["a"] * 5 + ["b"] * 2 + ["c"] * 2 + ["d"] * 2,
        step=[0, 1, 2, 3, 4, *[0, 1] * 3],
        observation=["x", "s", "p", "q", "r", "x", "s", "y", "s", "y", "s"],
        reward=[0, 0, 0.1, 0.2, -0.3, 0, 0, 0, 5, 0, 5],
    )
    result = compute_advantages(batch, "hgpo", gamma=1, history_length=1, preset="verl-agent")
    assert result.returns[1] != result.returns[6]
    at_s = [1, 6, 8, 10]
    assert not result.levels[1].used[at_s].any()
    assert result.levels[1].std[at_s].tolist() == [0.0] * 4
    np.testing.assert_allclose(result.values[at_s], [-1, -1, 1, 1], rtol=1e-5)


def test_inf_uses_the_longest_level_that_has_something_to_say_unless_weights_are_kept() -> None:
    alone = run(length_weight_alpha=float("inf"))
    assert alone.levels[1].weight.tolist() == [1.0] * 7
    longest = run(length_weight_alpha=float("inf"), missing="renormalize")
    assert longest.levels[0].weight[6] == 1.0
    assert not longest.levels[1].used[6]


def test_prompt_context_is_one_level() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 4, trajectory=[0, 1, 2, 3], step=[0] * 4, observation=["s"] * 4, prompt=["p", "p", "q", "q"],
        reward=[1.0, 0.0, 5.0, 6.0],
    )  # fmt: skip
    result = run(batch, context="prompt")
    assert len(result.levels) == 1
    close(result.values, 0.5, -0.5, -0.5, 0.5)


def test_a_penalty_lowers_its_own_step() -> None:
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=["s", "s"], reward=[1.0, 1.0], penalty=[0.1, 0.0]
    )
    close(run(batch).values, -0.05, 0.05)


def test_returns_equal_up_to_rounding_are_equal() -> None:
    """0.1 + 0.2 and 0.3 differ in their last bit; dividing that by a std of it would give +-1."""
    batch = StepBatch.from_columns(
        group=[0] * 4,
        trajectory=[0, 0, 1, 1],
        step=[0, 1, 0, 1],
        observation=["s", "t", "s", "t"],
        reward=[0.1, 0.2, 0.3, 0.0],
    )
    result = run(batch, gamma=1.0, history_length=0, mode="mean_std_norm", epsilon=0.0)
    assert result.returns[0] != result.returns[2]
    assert result.values[0] == result.values[2] == 0.0


def test_a_deviation_from_the_others_that_is_rounding_is_0() -> None:
    """The first step of a scores .1 like b, the only other trajectory; the second step's penalty enters a's mean."""
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=["a", "a", "b"], step=[0, 1, 0], observation=["x", "y", "x"], reward=[0.1, 0, 0.1],
        penalty=[0, 0.3, 0],
    )  # fmt: skip
    result = run(batch, base_group=True, baseline="leave_one_out")
    assert result.episode is not None
    assert result.episode.advantage[0] == 0.0


def test_equal_returns_in_a_large_group_are_exactly_0() -> None:
    count = 100_003
    batch = StepBatch.from_columns(
        group=np.zeros(count, int), trajectory=np.arange(count), step=np.zeros(count, int),
        observation=np.zeros(count, int), reward=np.full(count, 0.1),
    )  # fmt: skip
    assert (run(batch, mode="mean_std_norm").values == 0.0).all()
    assert (compute_advantages(batch, "grpo").values == 0.0).all()


def test_presets_and_explicit_options() -> None:
    paper = parse_options("hgpo")
    assert paper == parse_options("hgpo", preset="paper") == HgpoOptions()
    assert (paper.history_length, paper.mode, paper.length_weight_alpha) == (2, "mean_std_norm", 1.0)
    assert (paper.length_offset, paper.ddof, paper.missing, paper.early) == (1, 0, "zero", "truncate")
    assert (paper.base_group, paper.baseline, paper.context, paper.weight_type) == (
        False, "mean", "observation", "length",
    )  # fmt: skip
    published = parse_options("hgpo", preset="verl-agent", early="pad")
    assert (published.length_offset, published.missing, published.early) == (2, "drop_zero", "pad")
    assert parse_options("hgpo", preset="verl-agent", missing="zero", length_offset=1, early="truncate") == paper
