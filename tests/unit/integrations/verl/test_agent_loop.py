"""Rows of tasks, an episode as agent workers play it, an error on its way to the trainer. Needs verl."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgpo.config import Config
from hgpo.policies.tiny import build_tokenizer

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import torch
from omegaconf import OmegaConf
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient

from corridor import CorridorSuite
from hgpo.integrations.verl.agent_loop import (
    StepwiseAgentLoop,
    as_columns,
    evaluation_rows,
    one_server,
    training_rows,
)
from hgpo.integrations.verl.env_pool import EpisodeLost
from hgpo.integrations.verl.launch import RECIPE_KEY
from hgpo.integrations.verl.rows import RECORD, EpisodeRows, unpack_records
from hgpo.rollout.records import StepRecord
from hgpo.rollout.sampling import task_indices
from hgpo.rollout.state_keys import Visit

WORDS = "task : open the door at place 0 1 2 3 4 5 6 past : you are at now : > . go left right quietly aloud"
VERSIONS = {"min_global_steps": 3, "max_global_steps": 4}
ROW = {
    "group": "1/0/t",
    "task_id": "t",
    "task_type": "k",
    "split": "train",
    "task_index": 1,
    "seed": 0,
    "uid": "u",
    "session_id": 0,
}


class Engine:
    """Answers one token; remembers the prompts."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        self.prompts.append(prompt_ids)
        return SimpleNamespace(token_ids=[5], log_probs=[-0.1], extra_fields=VERSIONS)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    StepwiseAgentLoop.shared = None
    yield
    StepwiseAgentLoop.shared = None


def played(engine: Engine, tokenizer: Any = None, state: str = "observation", **policy: Any) -> EpisodeRows:
    recipe = Config.model_validate(
        {
            "run": {"engine": "verl"},
            "environment": {"name": "corridor:CorridorSuite", "max_steps": 2},
            "agent": {"template": "compact"},
            "rollout": {"state": state},
            "policy": {"model": "m", "max_prompt_tokens": 40, "max_response_tokens": 4, **policy},
            "evaluation": {"split": "held_out"},
        }
    )
    settings = recipe.model_dump_json(exclude_none=True)
    stored = OmegaConf.create({RECIPE_KEY: {"settings": settings, "run_directory": "/runs/one"}})
    loop = StepwiseAgentLoop(stored, engine, tokenizer or build_tokenizer([WORDS]))

    async def test() -> EpisodeRows | None:
        try:
            return await loop.run({"temperature": 1.0}, ROW)
        finally:
            if StepwiseAgentLoop.shared is not None:
                await StepwiseAgentLoop.shared.pool.close()

    rows = asyncio.run(asyncio.wait_for(test(), 120))
    assert rows is not None
    return rows


def column(rows: EpisodeRows, name: str) -> list[list[Any]]:
    return [row.tolist() for row in rows.columns[name].unbind()]


def stored(rows: EpisodeRows) -> list[StepRecord | str]:
    return unpack_records(torch.nested.as_nested_tensor(rows.columns[RECORD].unbind(), layout=torch.jagged))


def test_an_episode_comes_back_as_one_row_a_step() -> None:
    rows = played(engine := Engine())
    records = [record for record in stored(rows) if isinstance(record, StepRecord)]
    assert [record.step for record in records] == [0, 1]
    assert [record.prompt_ids.tolist() for record in records] == column(rows, "prompts") == engine.prompts
    assert column(rows, "input_ids") == [[*prompt, 5] for prompt in engine.prompts]
    assert column(rows, "position_ids") == [list(range(len(prompt) + 1)) for prompt in engine.prompts]
    assert column(rows, "responses") == [[5], [5]]
    assert column(rows, "response_mask") == [[1], [1]]
    assert column(rows, "rollout_log_probs") == [[pytest.approx(-0.1)], [pytest.approx(-0.1)]]
    lengths = [(tag["prompt_len"], tag["response_len"], tag["seq_len"]) for tag in rows.tags]
    assert lengths == [(len(prompt), 1, len(prompt) + 1) for prompt in engine.prompts]
    assert [(tag["min_global_steps"], tag["max_global_steps"]) for tag in rows.tags] == [(3, 4), (3, 4)]


def own_state(visit: Visit) -> str:
    return f"{visit.observation} after {visit.action is not None}, won: {visit.info['won']}"


def test_states_are_named_by_the_key_of_the_recipe() -> None:
    records = [
        record for record in stored(played(Engine(), state=f"{__name__}:own_state")) if not isinstance(record, str)
    ]
    place = "you are at place 0 after"
    assert [record.observation for record in records] == [f"{place} False, won: False", f"{place} True, won: False"]
    assert records[1].next_observation == f"{place} True, won: False"


def test_a_prompt_that_is_too_long_without_memory_ends_the_run_as_in_the_built_in_trainer() -> None:
    [message] = stored(played(engine := Engine(), max_prompt_tokens=5))
    assert isinstance(message, str)
    assert "over policy.max_prompt_tokens = 5" in message
    assert engine.prompts == []


def test_an_error_of_the_engine_travels_with_its_kind() -> None:
    class Broken(Engine):
        async def generate(self, **_: Any) -> Any:
            raise ConnectionError("nobody there")

    assert stored(played(Broken())) == ["ConnectionError: nobody there"]


class Router:
    """verl's router as an actor's handle shows it; counts what it is asked."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str | None]] = []
        self.acquire_server = self._method(self._acquire)
        self.release_server = self._method(lambda server_id, request_id: self.log.append(("release", request_id)))
        self.require_acquire_fields = self._method(list)
        self.require_release_fields = self._method(lambda: ["request_id"])

    def _method(self, function: Any) -> Any:
        def remote(**arguments: Any) -> Any:
            answer = asyncio.get_running_loop().create_future()
            answer.set_result(function(**arguments))
            return answer

        return SimpleNamespace(remote=remote)

    def _acquire(self, request_id: str) -> tuple[str, Any]:
        self.log.append(("acquire", request_id))
        return "server", SimpleNamespace(generate=self._method(lambda **_: SimpleNamespace(extra_fields={})))


@pytest.mark.parametrize("fails", [False, True])
def test_an_episode_asks_the_router_once(fails: bool) -> None:
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "vllm"}}})

    async def episode(client: LLMServerClient) -> None:
        with one_server(client) as own:
            for _ in range(3):
                await own.generate("episode", prompt_ids=[1], sampling_params={})
            if fails:
                raise EpisodeLost

    async def test() -> list[tuple[str, str | None]]:
        client = LLMServerClient(config, router := Router())
        with contextlib.suppress(EpisodeLost):
            await episode(client)
        return router.log

    assert asyncio.run(test()) == [("acquire", "episode"), ("release", "episode")]


def test_a_client_whose_servers_come_and_go_is_left_as_it_is() -> None:
    client = FullyAsyncLLMServerClient(OmegaConf.create(), None)
    with one_server(client) as own:
        assert own is client


def test_what_the_chat_template_reads_reaches_it() -> None:
    tokenizer = build_tokenizer([WORDS])
    tokenizer.chat_template += "{% if enable_thinking is defined and not enable_thinking %} quietly{% endif %}"
    plain, quiet = Engine(), Engine()
    played(plain, tokenizer)
    StepwiseAgentLoop.shared = None
    played(quiet, tokenizer, chat_template_options={"enable_thinking": False})
    assert ["quietly" in tokenizer.decode(prompt) for prompt in quiet.prompts] == [True, True]
    assert ["quietly" in tokenizer.decode(prompt) for prompt in plain.prompts] == [False, False]


# ---- rows of tasks -------------------------------------------------------------------------------------------------


def test_the_order_is_the_built_in_trainers_and_ids_are_unique() -> None:
    tasks = CorridorSuite(longest=11).tasks("train")
    rows = training_rows(tasks, "train", seed=4, update=2, start=4, count=9)
    assert [row.task_index for row in rows] == task_indices(4, len(tasks), 4, 9)
    assert [row.task_id for row in rows] == [tasks[row.task_index].id for row in rows]
    assert len({row.group for row in rows}) == 9  # though there are six tasks alone
    assert len({row.seed for row in rows}) == 9
    assert all(row.group.startswith("2/") for row in rows)


def test_a_resumed_run_draws_what_the_first_would_have_drawn() -> None:
    tasks = CorridorSuite(longest=11).tasks("train")
    whole = training_rows(tasks, "train", seed=0, update=1, start=0, count=8)
    later = training_rows(tasks, "train", seed=0, update=1, start=5, count=3)
    assert whole[5:] == later


def test_an_evaluation_has_every_task_once_whatever_the_seed() -> None:
    tasks = CorridorSuite(longest=11).tasks("held_out")
    first, second = (evaluation_rows(tasks, "held_out", seed=seed) for seed in (123, 456))
    assert [row.task_id for row in first] == [task.id for task in tasks] == [row.task_id for row in second]
    assert {row.seed for row in first}.isdisjoint(row.seed for row in second)
    assert {row.group for row in first}.isdisjoint(row.group for row in second)


def test_columns_keep_rows_together() -> None:
    rows = evaluation_rows(CorridorSuite().tasks("train"), "train", seed=1)
    columns = as_columns(rows)
    assert columns["group"] == [row.group for row in rows]
    assert columns["index"] == columns["task_index"] == [0, 1, 2]
