"""Both engines play the same episode: same prompts, actions, rewards and ids from the same responses."""

from __future__ import annotations

import asyncio
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from corridor import CorridorSuite
from hgpo.agents import get_template
from hgpo.envs.limit import LimitedSuite
from hgpo.integrations.verl.environments import EnvironmentPool, EpisodeLost, WorkerSettings
from hgpo.integrations.verl.episodes import Answer, Assignment, plain_fields, play, record_from
from hgpo.policies.encoding import PromptEncoder
from hgpo.policies.tiny import build_model, build_tokenizer
from hgpo.policies.transformers import TransformersPolicy
from hgpo.rollout.collect import RolloutRules, collect
from hgpo.rollout.records import StepRecord

MAX_STEPS, MAX_RESPONSE = 6, 4
WORDS = "task : open the door at place 0 1 2 3 4 5 6 past : you are at place now : > . go left right"


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    tokenizer = build_tokenizer([WORDS])
    model = build_model(len(tokenizer), hidden_size=32, layers=1, heads=2, max_tokens=64, initializer_range=0.2, seed=3)
    return TransformersPolicy(model, tokenizer, max_prompt_tokens=34, max_response_tokens=MAX_RESPONSE)


RULES = RolloutRules(get_template("compact"), 2, 1.0, reward_scale=10.0, invalid_action_penalty=0.1)


def answers_of(records: list[StepRecord]) -> dict[tuple[int, ...], Answer]:
    return {
        (record.step, *record.prompt_ids.tolist()): Answer(record.token_ids, record.log_probs, {}) for record in records
    }


def play_again(
    records: list[StepRecord],
    policy: TransformersPolicy,
    monkeypatch: pytest.MonkeyPatch,
    rules: RolloutRules = RULES,
) -> Any:
    """The episode of `records` over the pool, the engine answering what the policy answered."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3])]))
    known, turn = answers_of(records), iter(range(MAX_STEPS))
    first = records[0]
    assignment = Assignment(first.group, first.trajectory, first.task_id, first.task_type, "train", 1, seed=0)

    async def generate(prompt_ids: np.ndarray) -> Answer:
        return known[(next(turn), *prompt_ids.tolist())]

    async def test() -> Any:
        pool = EnvironmentPool(WorkerSettings("corridor:CorridorSuite", {}, MAX_STEPS, 30.0), 1)
        encoder = PromptEncoder(policy.tokenizer, policy.max_prompt_tokens)
        try:
            return await play(assignment, pool, generate, encoder, rules, max_response_tokens=MAX_RESPONSE)
        finally:
            await pool.close()

    return asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("state", ["observation", "observation_and_commands"])
@pytest.mark.parametrize("seed", range(3))
def test_the_records_are_those_of_the_built_in_rollout(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, seed: int, state: str
) -> None:
    task = LimitedSuite(CorridorSuite(), MAX_STEPS).tasks("train")[1]
    rules = replace(RULES, state=state)
    expected = collect([task], policy, rules, np.random.default_rng(seed), label="3/")
    found, _ = play_again(expected, policy, monkeypatch, rules)
    assert len(found) == len(expected)
    assert any(record.forgotten for record in expected)  # the prompt limit had to be kept
    for mine, theirs in zip(found, expected, strict=True):
        for item in fields(StepRecord):
            np.testing.assert_array_equal(getattr(mine, item.name), getattr(theirs, item.name), err_msg=item.name)


class Lingering:
    """An episode that goes on for two steps after it is won; it stands for its pool as well."""

    observation, info = "you are at place 1", {"won": False}

    def __init__(self) -> None:
        self._steps = 0

    async def start(self, split: str, index: int, *, seed: int) -> Lingering:
        return self

    async def step(self, command: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation, 0.5, False, self._steps == 4, {"won": self._steps >= 2}

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("kind", "paid"), [("won", [0, 10, 0, 0]), ("environment", [5, 5, 5, 5])])
def test_a_win_is_paid_once(policy: TransformersPolicy, kind: str, paid: list[float]) -> None:
    async def generate(prompt_ids: np.ndarray) -> Answer:
        return Answer(np.array([1], dtype=np.int32), np.zeros(1, dtype=np.float32), {})

    assignment = Assignment("g", "g#0", "t", "k", "train", 0, seed=0)
    encoder, pool = PromptEncoder(policy.tokenizer, policy.max_prompt_tokens), cast(EnvironmentPool, Lingering())
    rules = replace(RULES, reward=kind)
    records, _ = asyncio.run(play(assignment, pool, generate, encoder, rules, max_response_tokens=MAX_RESPONSE))
    assert [record.reward for record in records] == paid


def test_an_engine_without_an_answer_costs_the_episode(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = LimitedSuite(CorridorSuite(), MAX_STEPS).tasks("train")[1]
    [first, *_] = collect([task], policy, RULES, np.random.default_rng(0))
    silent = StepRecord(**{**plain_fields(first), "prompt_ids": first.prompt_ids})
    with pytest.raises(EpisodeLost, match="answered no token"):
        play_again([silent], policy, monkeypatch)


def test_prompts_are_encoded_as_the_policy_encodes_them(policy: TransformersPolicy) -> None:
    prompts = ["go left", "you are <|end|> at place 3", "\ud800 odd", ""]
    encoder = PromptEncoder(policy.tokenizer, 34)
    for mine, theirs in zip(encoder.encode_prompts(prompts), policy.encode_prompts(prompts), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert encoder.count_prompt_tokens(prompts) == policy.count_prompt_tokens(prompts)


def test_a_record_survives_its_way_through_the_queue(policy: TransformersPolicy) -> None:
    task = LimitedSuite(CorridorSuite(), MAX_STEPS).tasks("train")[0]
    [record, *_] = collect([task], policy, RULES, np.random.default_rng(0))
    plain = plain_fields(record)
    assert not any(isinstance(value, np.ndarray) for value in plain.values())
    again = record_from(plain, record.prompt_ids, record.token_ids, record.log_probs)
    assert plain_fields(again) == plain
