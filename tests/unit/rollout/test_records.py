"""What estimators and evaluations are given of recorded steps."""

import numpy as np
import pytest

from hgpo.rollout.records import EpisodeSummary, StepCounts, TotalUsage, Values, by_trajectory, to_step_batch
from step_records import step_record

STEPS = [
    step_record(step=1, reward=2.0, won=True, score=0.5, terminated=True, observation='{"b": 1, "a": 2}'),
    step_record(trajectory="b", truncated=True, observation='{"a": 2, "b": 1}', next_observation="attic"),
    step_record(step=0, reward=1.0),
]


def test_steps_in_any_order_are_the_same_episodes():
    a, b = by_trajectory(STEPS)
    assert [step.reward for step in a] == [1.0, 2.0]
    assert (a[-1].won, a[-1].score) == (True, 0.5)
    assert b == [STEPS[1]]


def test_a_batch_has_the_critics_values_and_what_was_seen_next():
    batch = to_step_batch(STEPS, Values(np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0, 0.0])))
    assert (batch.value.tolist(), batch.bootstrap.tolist()) == ([1.0, 2.0, 3.0], [0.0, 4.0, 0.0])
    shown = [batch.labels["observation"][code] for code in batch.next_observation]
    assert shown == ["kitchen", "attic", "kitchen"]


@pytest.mark.parametrize(("state", "states"), [("observation", 3), ("json", 2)])
def test_the_state_key_json_applies_to_a_whole_batch(state, states):
    assert len(set(to_step_batch(STEPS, state=state).observation)) == states


def test_a_task_is_won_with_its_last_trial():
    usage = TotalUsage(prompt_tokens=0, response_tokens=0, requests=0)
    assert EpisodeSummary("task", "kind", 1, (False, True), 1.0, StepCounts(), usage).won
