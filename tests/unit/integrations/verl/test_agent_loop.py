"""Rows of tasks, an episode as agent workers play it, an error on its way to the trainer. Needs verl."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgpo.config import Config
from hgpo.policies.tiny import build_tokenizer

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from omegaconf import OmegaConf

from corridor import CorridorSuite
from hgpo.integrations.verl.agent_loop import (
    FAILURE_KEY,
    RECORD_KEY,
    StepwiseAgentLoop,
    as_columns,
    panel_rows,
    training_rows,
)
from hgpo.integrations.verl.launch import RECIPE_KEY
from hgpo.rollout.sampling import task_indices

WORDS = "task : open the door at place 0 1 2 3 4 5 6 past : you are at now : > . go left right quietly aloud"
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
        return SimpleNamespace(token_ids=[5], log_probs=[-0.1], extra_fields={})


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3])]))
    StepwiseAgentLoop.shared = None
    yield
    StepwiseAgentLoop.shared = None


def played(engine: Engine, tokenizer: Any = None, **policy: Any) -> list[Any]:
    recipe = Config.model_validate(
        {
            "run": {"engine": "verl"},
            "environment": {"name": "corridor:CorridorSuite", "max_steps": 2},
            "agent": {"template": "compact"},
            "policy": {"model": "m", "max_prompt_tokens": 40, "max_response_tokens": 4, **policy},
        }
    )
    settings = recipe.model_dump_json(exclude_none=True)
    stored = OmegaConf.create({RECIPE_KEY: {"settings": settings, "run_directory": "/runs/one"}})
    loop = StepwiseAgentLoop(SimpleNamespace(config=stored), engine, tokenizer or build_tokenizer([WORDS]))

    async def test() -> list[Any]:
        try:
            return await loop.run({"temperature": 1.0}, **ROW)
        finally:
            if StepwiseAgentLoop.shared is not None:
                await StepwiseAgentLoop.shared.pool.close()

    return asyncio.run(asyncio.wait_for(test(), 120))


def test_an_episode_comes_back_as_one_sample_a_step() -> None:
    outputs = played(engine := Engine())
    assert [output.extra_fields[RECORD_KEY]["step"] for output in outputs] == [0, 1]
    assert [output.prompt_ids for output in outputs] == engine.prompts
    assert all(output.response_mask == [1] and output.response_logprobs == pytest.approx([-0.1]) for output in outputs)


def test_a_prompt_that_is_too_long_without_memory_ends_the_run_as_in_the_built_in_trainer() -> None:
    [output] = played(engine := Engine(), max_prompt_tokens=5)
    assert "over policy.max_prompt_tokens = 5" in output.extra_fields[FAILURE_KEY]
    assert engine.prompts == []


def test_an_error_of_the_engine_travels_with_its_kind() -> None:
    class Broken(Engine):
        async def generate(self, **_: Any) -> Any:
            raise ConnectionError("nobody there")

    [output] = played(Broken())
    assert output.extra_fields[FAILURE_KEY] == "ConnectionError: nobody there"


def test_what_the_chat_template_reads_reaches_it() -> None:
    tokenizer = build_tokenizer([WORDS])
    tokenizer.chat_template += "{% if enable_thinking is defined and not enable_thinking %} quietly{% endif %}"
    plain, told = Engine(), Engine()
    played(plain, tokenizer)
    StepwiseAgentLoop.shared = None
    played(told, tokenizer, chat_template_options={"enable_thinking": False})
    assert ["quietly" in tokenizer.decode(prompt) for prompt in told.prompts] == [True, True]
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


def test_a_panel_holds_every_task_once_whatever_the_seed() -> None:
    tasks = CorridorSuite(longest=11).tasks("held_out")
    first, second = (panel_rows(tasks, "held_out", seed=seed) for seed in (123, 456))
    assert [row.task_id for row in first] == [task.id for task in tasks] == [row.task_id for row in second]
    assert {row.seed for row in first}.isdisjoint(row.seed for row in second)
    assert {row.group for row in first}.isdisjoint(row.group for row in second)


def test_columns_keep_rows_together() -> None:
    rows = panel_rows(CorridorSuite().tasks("train"), "train", seed=1)
    columns = as_columns(rows)
    assert columns["group"] == [row.group for row in rows]
    assert columns["index"] == columns["task_index"] == [0, 1, 2]
