"""Attempts as a batch of steps, and advantages back in their shape."""

import time

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.integrations.turns import (
    ComparisonWarning,
    StepAdvantages,
    Turn,
    new_part,
    turns_of_conversation,
    with_final_reward,
)
from hgpo.steps import StepBatch

ATTEMPTS = [
    [Turn("hall", "a"), Turn("kitchen", "b", 1.0)],
    [Turn("hall", "a"), Turn("kitchen", "c"), Turn("hall", "b")],
    [],
    [Turn(("hall",), "a", 2.0)],
]
GROUPS = ["x", "x", "x", ("y", 1)]


@pytest.mark.parametrize("estimator", ["hgpo", "gigpo", "grpo"])
def test_advantages_are_those_of_the_same_steps_in_columns(estimator):
    batch = StepBatch.from_columns(
        group=["x"] * 5 + ["y"],
        trajectory=[0, 0, 1, 1, 1, 2],
        step=[0, 1, 0, 1, 2, 0],
        observation=["hall", "kitchen", "hall", "kitchen", "hall", "other"],
        reward=[0, 1, 0, 0, 0, 2],
    )
    found = StepAdvantages(estimator, gamma=0.5)(ATTEMPTS, GROUPS)
    assert [len(values) for values in found] == [2, 3, 0, 1]
    assert np.concatenate(found) == pytest.approx(compute_advantages(batch, estimator=estimator, gamma=0.5).values)


def test_nothing_to_compare_gives_nothing():
    assert [len(values) for values in StepAdvantages()([[], []], ["x", "x"])] == [0, 0]


@pytest.mark.parametrize(
    ("estimator", "options"),
    [("hgpo", {"context": "observation_action"}), ("nested_td", {"action_power": 0}), ("mixed_effects", {})],
)
def test_turns_without_actions_are_not_taken_as_equal_ones(estimator, options):
    unknown = [[Turn(turn.observation, reward=turn.reward) for turn in turns] for turns in ATTEMPTS]
    estimate = StepAdvantages(estimator, options=options)
    assert len(np.concatenate(estimate(ATTEMPTS, GROUPS))) == 6
    with pytest.raises(ValueError, match="needs the column action"):
        estimate(unknown, GROUPS)
    assert len(np.concatenate(StepAdvantages("gigpo")(unknown, GROUPS))) == 6


def test_every_attempt_has_a_group():
    with pytest.raises(ValueError, match="4 attempts, but 1 group:"):
        StepAdvantages()(ATTEMPTS, ["x"])


def test_turns_of_a_conversation_end_with_its_reward():
    talk = [("system", "s"), ("user", "hall"), ("assistant", "go"), ("tool", "kitchen"), ("assistant", "take")]
    turns = turns_of_conversation([{"role": role, "content": content} for role, content in talk], 2.0)
    assert turns == [Turn("hall", "go", 0.0), Turn("kitchen", "take", 2.0)]
    assert with_final_reward([], 1.0) == []


def test_what_is_new_in_a_prompt():
    assert new_part([1], [2], [1, 2, 3]) == (3,)
    assert new_part([1], [2], [1, 2]) == ()
    assert new_part([1], [], [1, 3]) == (3,)
    assert new_part([1, 2], [70, 71, 8, 9], [1, 2, 8, 9, 3]) == (3,)  # the template left out the thought
    for prompt in ([1, 3, 4], [1], [1, 2, 5, 3]):
        with pytest.warns(ComparisonWarning, match="does not extend the previous prompt"):
            assert new_part([1, 2], [70, 8], prompt) == tuple(prompt)


def test_a_long_thought_that_the_template_left_out_costs_little():
    thought, answer, seen = list(range(50_000)), [-1, -2], list(range(100_000, 150_000))
    start = time.process_time()
    assert new_part([0], thought + answer, [0, *answer, *seen]) == tuple(seen)
    assert time.process_time() - start < 1.0  # 5 seconds if every length is compared


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"estimator": "hgp"}, "unknown estimator 'hgp'; did you mean hgpo"),
        ({"options": {"moode": "mean_norm"}}, "unknown option 'moode'"),
        ({"gamma": 1.5}, "gamma must be a number from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused_before_the_first_rollouts(wrong, message):
    with pytest.raises(ValueError, match=message):
        StepAdvantages(**wrong)
