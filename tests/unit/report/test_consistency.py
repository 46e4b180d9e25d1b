import numpy as np
from hypothesis import given

from batches import columns
from hgpo import StepBatch, compute_advantages
from hgpo.report.analysis import prompt_consistency


def test_prompts_that_tell_returns_apart_by_hand():
    """Four steps in one state: prompts a, a with returns 0, 0 and b, b with returns 1, 1."""
    batch = StepBatch.from_columns(
        group=["g"] * 4,
        trajectory=["p", "q", "r", "s"],
        step=[0] * 4,
        observation=["x"] * 4,
        prompt=["a", "a", "b", "b"],
        reward=[0, 0, 1, 1],
    )
    (level,) = prompt_consistency(batch, batch.reward, 0, "mean_norm")
    figures = level.counts
    assert (figures.groups, figures.differ, figures.steps, figures.alone) == (1, 1, 4, 0)
    assert figures.explained == 1.0
    assert level.whole_N.tolist() == [-0.5, -0.5, 0.5, 0.5]
    assert level.split_N.tolist() == [0, 0, 0, 0]
    assert figures.change == 2.0
    assert (figures.compared, figures.flipped) == (0, 0)


def test_a_flipped_sign_and_a_lonely_prompt_by_hand():
    """Returns 0, 2 with prompt a and 9 with prompt b: mean 11/3, so the 2 is below it and above its own part's mean."""
    batch = StepBatch.from_columns(
        group=["g"] * 3,
        trajectory=["p", "q", "r"],
        step=[0] * 3,
        observation=["x"] * 3,
        prompt=["a", "a", "b"],
        reward=[0, 2, 9],
    )
    (level,) = prompt_consistency(batch, batch.reward, 0, "mean_norm")
    assert (level.counts.compared, level.counts.flipped, level.counts.alone) == (2, 1, 1)
    assert level.split_N.tolist() == [-1, 1, 0]


@given(columns())
def test_splitting_by_prompt_is_the_level_of_a_batch_whose_observation_holds_the_prompt(batch_columns):
    batch = StepBatch.from_columns(**batch_columns)
    (level, *_) = prompt_consistency(batch, batch.reward, 1, "mean_norm")
    both = list(zip(batch_columns["observation"], batch_columns["prompt"], strict=True))
    split = StepBatch.from_columns(**{**batch_columns, "observation": both, "penalty": [0] * len(both)})
    expected = compute_advantages(split, "hgpo", gamma=0.0, history_length=0, mode="mean_norm")
    np.testing.assert_allclose(level.split_N, expected.levels[0].advantage, atol=1e-12)


def test_without_prompts_there_is_nothing_to_say():
    batch = StepBatch.from_columns(group=["g"], trajectory=["t"], step=[0], observation=["x"], reward=[0])
    assert prompt_consistency(batch, batch.reward, 2, "mean_norm") == ()


def test_where_no_two_steps_are_compared_nothing_is_explained():
    batch = StepBatch.from_columns(group=["g"], trajectory=["t"], step=[0], observation=["x"], reward=[0], prompt=["p"])
    assert prompt_consistency(batch, batch.reward, 0, "mean_norm")[0].counts.explained is None
