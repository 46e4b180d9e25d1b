"""Both engines play the same episode: same prompts, actions, rewards and ids from the same responses."""

from __future__ import annotations

import asyncio
import os
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from corridor import CorridorSuite
from hgpo.agents import TEMPLATES
from hgpo.envs.wrappers import LimitedSuite
from hgpo.integrations.verl.env_pool import (
    EnvironmentPool,
    EpisodeLost,
    RemoteEnvironment,
    VerlPolicy,
    play_remotely,
)
from hgpo.integrations.verl.env_worker import WorkerSettings
from hgpo.policies.base import NO_TOKENS, Request
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.tiny import build_model, build_tokenizer
from hgpo.rollout.episode import EpisodeIds
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import collect

MAX_STEPS, MAX_RESPONSE = 6, 4
WORDS = "task : open the door at place 0 1 2 3 4 5 6 past : you are at place now : > . go left right"


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    tokenizer = build_tokenizer([WORDS])
    model = build_model(len(tokenizer), hidden_size=32, layers=1, heads=2, max_tokens=64, initializer_range=0.2, seed=3)
    return TransformersPolicy(LanguageModel.of(model, tokenizer, GenerationLimits(34, MAX_RESPONSE)))


RULES = RolloutRules(TEMPLATES.get("compact"), 2, 1.0, reward_scale=10.0, invalid_action_penalty=0.1)


class Engine:
    """Answers as verl's server manager does, with what was said to the same prompts before."""

    def __init__(self, records: list[StepRecord]) -> None:
        self._known = {(record.step, *record.prompt_ids.tolist()): record for record in records}
        self._turn = iter(range(MAX_STEPS))
        self.asked: list[dict[str, Any]] = []

    async def generate(self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append({"request_id": request_id, **sampling_params})
        record = self._known[(next(self._turn), *prompt_ids)]
        tokens, log_probs = record.token_ids.tolist(), record.log_probs.tolist()
        return SimpleNamespace(token_ids=tokens, log_probs=log_probs, extra_fields={"global_steps": 7})


def engine_policy(policy: TransformersPolicy, engine: Any) -> VerlPolicy:
    return VerlPolicy(engine, policy.language_model.encoder, {"top_p": 1.0}, MAX_RESPONSE)


def play_again(
    records: list[StepRecord],
    policy: TransformersPolicy,
    monkeypatch: pytest.MonkeyPatch,
    rules: RolloutRules = RULES,
) -> Any:
    """The episode of `records` over the pool, the engine answering what the policy answered."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    first, engine = records[0], Engine(records)
    ids = EpisodeIds(first.group, first.trajectory, first.task_id, first.task_type)

    async def test() -> Any:
        pool = EnvironmentPool(WorkerSettings("corridor:CorridorSuite", {}, MAX_STEPS, 30.0), 1)
        try:
            environment = await pool.start("train", 1, seed=0)
            return await play_remotely(ids, environment, engine_policy(policy, engine), rules)
        finally:
            await pool.close()

    turns = asyncio.run(asyncio.wait_for(test(), 60))
    assert len({asked["request_id"] for asked in engine.asked}) == 1  # one for all turns of an episode
    assert all(asked["temperature"] == 1.0 and asked["max_tokens"] == MAX_RESPONSE for asked in engine.asked)
    assert all(response.details == {"global_steps": 7} for _, response in turns)
    return [record for record, _ in turns]


@pytest.mark.parametrize(
    "state",
    [
        "observation",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("observation_and_commands", "published_g2po")),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_the_records_are_those_of_the_built_in_rollout(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, seed: int, state: str
) -> None:
    task = LimitedSuite(CorridorSuite(), MAX_STEPS).tasks("train")[1]
    rules = replace(RULES, state=state)
    expected = collect([task], policy, rules, np.random.default_rng(seed), label="3/")
    found = play_again(expected, policy, monkeypatch, rules)
    assert len(found) == len(expected)
    assert any(record.forgotten for record in expected)  # the prompt limit had to be kept
    for mine, theirs in zip(found, expected, strict=True):
        for item in fields(StepRecord):
            np.testing.assert_array_equal(getattr(mine, item.name), getattr(theirs, item.name), err_msg=item.name)


class Lingering:
    """An episode that goes on for two steps after it is won."""

    observation, info = "you are at place 1", {"won": False}

    def __init__(self) -> None:
        self._steps = 0

    async def step(self, command: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation, 0.5, False, self._steps == 4, {"won": self._steps >= 2}

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("kind", "paid"), [("won", [0, 10, 0, 0]), ("environment", [5, 5, 5, 5])])
def test_a_win_is_paid_once(policy: TransformersPolicy, kind: str, paid: list[float]) -> None:
    class Mumbling:
        async def generate(self, **_: Any) -> Any:
            return SimpleNamespace(token_ids=[1], log_probs=[0.0], extra_fields={})

    environment, ids = cast(RemoteEnvironment, Lingering()), EpisodeIds("g", "g#0", "t", "k")
    rules = replace(RULES, reward=kind)
    turns = asyncio.run(play_remotely(ids, environment, engine_policy(policy, Mumbling()), rules))
    assert [record.reward for record, _ in turns] == paid


@pytest.mark.slow
def test_an_engine_without_an_answer_costs_the_episode(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = LimitedSuite(CorridorSuite(), MAX_STEPS).tasks("train")[1]
    [first, *_] = collect([task], policy, RULES, np.random.default_rng(0))
    silent = replace(first, token_ids=NO_TOKENS, log_probs=NO_TOKENS)
    with pytest.raises(EpisodeLost, match="returned no token"):
        play_again([silent], policy, monkeypatch)


def test_an_engine_that_forgets_log_probs_is_an_error(policy: TransformersPolicy) -> None:
    class Forgetful:
        async def generate(self, **_: Any) -> Any:
            return SimpleNamespace(token_ids=[1, 2], log_probs=None, extra_fields={})

    with pytest.raises(RuntimeError, match="0 log-probs for 2 tokens"):
        asyncio.run(engine_policy(policy, Forgetful()).respond(Request("go left"), temperature=1.0))
