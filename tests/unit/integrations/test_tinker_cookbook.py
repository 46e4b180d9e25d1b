"""Advantages of transitions in the data that tinker-cookbook trains on, made by its own functions."""

import pytest

from hgpo.integrations.turns import StepAdvantages, Turn

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed: pip install tinker-cookbook")

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl import data_processing
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from hgpo.integrations.tinker import assembling, new_tokens, step_advantages

HALL, KITCHEN = [1, 1], [2]


def transition(prompt, action, reward=0.0, **metrics):
    tokens = TokensWithLogprobs(action, [-0.5] * len(action))
    return Transition(tinker.ModelInput.from_ints(prompt), tokens, reward, False, metrics)


def trajectory(first, second, reward, **metrics):
    """Two turns, of which the second's prompt holds the first, and a third that begins anew."""
    steps = [
        transition(HALL, first, **metrics),
        transition([*HALL, *first, *KITCHEN], second, reward),
        transition(KITCHEN, [9]),
    ]
    return Trajectory(steps, tinker.ModelInput.empty())


@pytest.fixture
def groups():
    one = [trajectory([7, 7], [8], 1.0), trajectory([7, 7], [6, 6, 6], 0.0), trajectory([5], [8], 0.0)]
    other = [trajectory([7, 7], [8], 0.0), trajectory([7, 7], [8], 0.0)]
    return [TrajectoryGroup(one, [0.0, 0.0, 0.0], [{}] * 3), TrajectoryGroup(other, [0.0, 4.0], [{}] * 2)]


def test_an_observation_is_what_is_new(groups):
    first = groups[0].trajectories_G[0]
    assert [new_tokens(first, place) for place in range(3)] == [(1, 1), (2,), (2,)]


def test_each_token_has_the_advantage_of_its_transition(groups):
    estimate = StepAdvantages("gigpo", gamma=0.9)
    data, metadata = assembling(estimate)(groups, data_processing.compute_advantages(groups))
    expected, where = data_processing.assemble_training_data(groups, data_processing.compute_advantages(groups))
    assert metadata == where
    turns = [
        [Turn("hall"), Turn("kitchen", reward=reward), Turn("kitchen", reward=final)]
        for reward, final in [(1.0, 0), (0, 0), (0, 0), (0, 0), (0, 4.0)]
    ]
    values = estimate(turns, [0, 0, 0, 1, 1])
    for place, (first, second) in enumerate(zip(data[::2], data[1::2], strict=True)):
        a, b, c = values[place].tolist()
        action, answer = [[7, 7], [7, 7], [5], [7, 7], [7, 7]][place], [[8], [6] * 3, [8], [8], [8]][place]
        # the first token of the prompt is no target
        assert first.loss_fn_inputs["advantages"].to_torch().tolist() == pytest.approx(
            [0.0, *[a] * len(action), 0.0, *[b] * len(answer)]
        )
        assert second.loss_fn_inputs["advantages"].to_torch().tolist() == pytest.approx([c])
    for datum, usual in zip(data, expected, strict=True):
        for name in ("target_tokens", "logprobs", "mask"):
            assert datum.loss_fn_inputs[name].data == usual.loss_fn_inputs[name].data
        assert datum.model_input == usual.model_input


def test_a_turn_that_the_cookbook_masks_has_none():
    key = data_processing.PARSE_ERROR_MASKED_METRIC_KEY
    group = TrajectoryGroup([trajectory([7], [8], 1.0, **{key: 1.0}), trajectory([7], [8], 0.0)], [0, 0], [{}, {}])
    data, _ = assembling(StepAdvantages())([group], [None])
    first = data[0].loss_fn_inputs["advantages"].to_torch().tolist()
    assert first[1] == 0.0
    assert first[3] != 0.0


def test_a_rollout_that_ended_before_its_first_turn_has_none():
    empty = Trajectory([transition([], [], 0.5)], tinker.ModelInput.empty())
    group = TrajectoryGroup([empty, trajectory([7], [8], 1.0)], [0, 0], [{}, {}])
    assert [len(values) for values in step_advantages([group], StepAdvantages())[0]] == [1, 3]
    assert len(assembling(StepAdvantages())([group], [None])[0]) == 2
