"""Advantages written into rLLM's steps: on carriers of their shape, and on its own types."""

from types import SimpleNamespace

import pytest

from hgpo.integrations.attempts import StepAdvantages, Turn
from hgpo.integrations.rllm import grouping, put_advantages, turns_of


def step(observation, tokens, reward=0.0, talk=(), make=SimpleNamespace):
    return make(
        observation=observation,
        action=None,
        model_response="go",
        reward=reward,
        response_ids=[1] * tokens,
        chat_completions=[{"role": role, "content": content} for role, content in talk],
        advantage=None,
    )


def groups(make_step=SimpleNamespace, trajectory=SimpleNamespace, group=SimpleNamespace):
    def attempt(uid, reward):
        return trajectory(
            uid=uid, reward=reward, steps=[step("hall", 2, make=make_step), step("kitchen", 1, make=make_step)]
        )

    return [group(group_id="task:solver", trajectories=[attempt("a", 1.0), attempt("b", 0.0)])]


def test_a_trajectory_is_paid_at_its_end_unless_its_steps_are():
    paid = SimpleNamespace(uid="u", reward=7.0, steps=[step("hall", 1, 0.5), step("cellar", 1)])
    assert turns_of(paid) == [Turn("hall", "go", 0.5), Turn("cellar", "go", 0.0)]
    assert turns_of(groups()[0].trajectories[0])[1] == Turn("kitchen", "go", 1.0)


def test_an_observation_is_read_out_of_the_messages_where_none_is_set():
    talk = [("user", "hall"), ("assistant", "go"), ("tool", "kitchen"), ("assistant", "take")]
    whole = SimpleNamespace(uid="u", reward=None, steps=[step(None, 1, talk=talk[:2]), step(None, 1, talk=talk)])
    assert [turn.observation for turn in turns_of(whole)] == ["hall", "kitchen"]
    with pytest.raises(ValueError, match="step 0 of trajectory u has neither `observation` nor an answer"):
        turns_of(SimpleNamespace(uid="u", reward=0, steps=[step(None, 1)]))


def test_every_token_of_a_response_has_its_steps_advantage():
    found = groups()
    put_advantages(found, StepAdvantages())
    first, second = found[0].trajectories
    assert [len(one.advantage) for one in first.steps] == [2, 1]
    assert first.steps[0].advantage[0] == pytest.approx(-second.steps[0].advantage[0])
    assert grouping(StepAdvantages(), lambda episodes: found)([]) is found


def test_rllms_own_trainer_takes_them_as_they_are():
    reason = "rLLM is not installed: see its repository"
    types = pytest.importorskip("rllm.types", reason=reason)
    advantage = pytest.importorskip("rllm.trainer.algorithms.advantage", reason=reason, exc_type=ImportError)
    found = groups(types.Step, types.Trajectory, types.TrajectoryGroup)
    grouping(StepAdvantages())  # its own grouping function is where it is looked for
    put_advantages(found, StepAdvantages())
    before = [list(one.advantage) for trajectory in found[0].trajectories for one in trajectory.steps]
    config = SimpleNamespace(stepwise_advantage_mode="broadcast", use_precomputed_advantage=True)
    advantage.collect_reward_and_advantage_from_trajectory_groups(found, config)
    assert [one.advantage for trajectory in found[0].trajectories for one in trajectory.steps] == before
