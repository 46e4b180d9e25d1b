"""The policy that generates with vLLM, with an engine without a model. vLLM itself: tests/vllm_engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from corridor import Corridor
from hgpo.agents import TEMPLATES
from hgpo.assemble import train
from hgpo.config import ConfigError, load_config
from hgpo.envs.base import Task
from hgpo.policies.backends import BACKENDS
from hgpo.policies.base import PromptTooLong, Request, TokenIds, draw_requests
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.vllm import EngineFailed, VllmPolicy, Written, computing_type
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.runner import collect
from hgpo.utils.progress import Reporter
from tiny_models import random_prompts, tiny_model

RECIPE = Path(__file__).parents[2] / "corridor.toml"


def requests_for(policy: VllmPolicy, prompts: list[str]) -> list[Request]:
    return draw_requests(prompts, policy, np.random.default_rng(0), temperature=1.0)


class SeededEngine:
    """Draws tokens by the seed of each request alone and adds one to every open answer at each step.

    Raises an error at step `failing_step`, counted from 0.
    """

    def __init__(self, language_model: LanguageModel, failing_step: int | None = None) -> None:
        self.vocabulary = len(language_model.tokenizer)
        self.end_token, self.most = language_model.end_tokens[0], language_model.limits.response_tokens
        self.failing_step, self.steps = failing_step, 0
        self.log_prob = -float(np.log(self.vocabulary))
        self.open: dict[str, tuple[np.random.Generator, list[int]]] = {}

    def add(self, key: str, prompt_ids: TokenIds, temperature: float, seed: int | None) -> None:
        self.open[key] = (np.random.default_rng(seed), [])

    def step(self) -> dict[str, Written]:
        if self.steps == self.failing_step:
            raise ZeroDivisionError("the machine is on fire")
        self.steps += 1
        written = {}
        for key, (rng, tokens) in list(self.open.items()):
            tokens.append(self.end_token if rng.random() < 0.2 else int(rng.integers(self.vocabulary)))
            if tokens[-1] == self.end_token or len(tokens) == self.most:
                written[key] = tokens, [self.log_prob] * len(tokens)
                del self.open[key]
        return written

    def drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.open[key]

    def take_weights(self, model: Any) -> None:
        assert not self.open

    def release_memory(self) -> None:
        assert not self.open


def make_policy(language_model: LanguageModel, failing_step: int | None = None) -> VllmPolicy:
    engine: Any = SeededEngine(language_model, failing_step)
    return VllmPolicy(language_model, engine)


def test_an_engine_that_fails_fails_every_answer_that_is_awaited_and_all_later_ones() -> None:
    policy = make_policy(tiny_model(), failing_step=3)
    requests = requests_for(policy, random_prompts(6))

    async def answers() -> list[Any]:
        waiting = (policy.respond(one, temperature=1.0) for one in requests)
        return await asyncio.gather(*waiting, return_exceptions=True)

    failed = [one for one in asyncio.run(answers()) if isinstance(one, Exception)]
    assert len(failed) > 2
    for error in failed:
        assert isinstance(error, EngineFailed)
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert "policy backend 'vllm' failed with" in str(error)
        assert "ZeroDivisionError: the machine is on fire" in str(error)
    assert all(isinstance(one, EngineFailed) for one in asyncio.run(answers()))


def test_a_collection_ends_with_the_engines_error() -> None:
    policy = make_policy(tiny_model(max_prompt_tokens=56), failing_step=5)
    tasks = [Task(f"{goal}", "corridor", lambda goal=goal: Corridor(goal)) for goal in range(4)]
    rules = RolloutRules(TEMPLATES.get("compact"), history_length=0, temperature=1.0)

    with pytest.raises(EngineFailed, match="the machine is on fire"):
        collect(tasks, policy, rules, np.random.default_rng(0), group_size=8)


class _Broken(Corridor):
    def step(self, action: str) -> Any:
        raise OSError("the simulator is gone")


def test_an_episode_that_fails_leaves_nothing_in_the_engine() -> None:
    policy: Any = make_policy(tiny_model(max_prompt_tokens=56))
    tasks = [Task("broken", "corridor", lambda: _Broken(2)), Task("whole", "corridor", lambda: Corridor(2))]
    rules = RolloutRules(TEMPLATES.get("compact"), history_length=0, temperature=1.0)

    with pytest.raises(OSError, match="the simulator is gone"):
        collect(tasks, policy, rules, np.random.default_rng(0), group_size=6)

    assert not policy._waiting
    assert not policy._engine.open
    [request] = requests_for(policy, ["go to fridge"])
    again = asyncio.run(policy.respond(request, temperature=1.0))
    fresh = asyncio.run(make_policy(tiny_model(max_prompt_tokens=56)).respond(request, temperature=1.0))
    assert again.token_ids.tolist() == fresh.token_ids.tolist()


def test_short_answers_do_not_wait_for_long_ones() -> None:
    policy = make_policy(tiny_model())
    order: list[int] = []

    async def one(request: Request) -> None:
        order.append(len((await policy.respond(request, temperature=1.0)).token_ids))

    async def together() -> None:
        await asyncio.gather(*map(one, requests_for(policy, random_prompts(12))))

    asyncio.run(together())
    assert order == sorted(order)
    assert order[0] < order[-1]


def test_weights_are_not_taken_while_answers_are_written() -> None:
    language_model = tiny_model()
    policy = make_policy(language_model)
    [request] = requests_for(policy, ["go"])

    async def swap() -> None:
        waiting = asyncio.ensure_future(policy.respond(request, temperature=1.0))
        await asyncio.sleep(0)
        try:
            policy.take_weights(language_model.model)
        finally:
            waiting.cancel()

    with pytest.raises(RuntimeError, match=r"vLLM cannot take weights while requests are open \(1\)"):
        asyncio.run(swap())


def test_what_cannot_be_answered_is_refused_at_once() -> None:
    policy = make_policy(tiny_model())

    with pytest.raises(PromptTooLong, match="the limit is 48"):
        asyncio.run(policy.respond(Request("a " * 60, np.zeros(1)), temperature=1.0))
    with pytest.raises(ValueError, match="has no random numbers for sampling"):
        asyncio.run(policy.respond(Request("go"), temperature=1.0))
    for temperature in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="not a finite number"):
            asyncio.run(policy.respond(Request("go", np.zeros(1)), temperature=temperature))


def test_broken_weights_are_no_answer() -> None:
    policy: Any = make_policy(tiny_model())
    policy._engine.log_prob = float("nan")

    with pytest.raises(FloatingPointError, match="check its weights"):
        asyncio.run(policy.respond(Request("go"), temperature=0))


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_computing_type_is_that_of_the_trained_modules_forward_pass(precision: Any, dtype: torch.dtype) -> None:
    assert computing_type(tiny_model(precision=precision)) == dtype


@pytest.mark.skipif(BACKENDS.get("vllm").missing() is None, reason="vLLM is installed")
def test_a_training_without_vllm_is_refused_with_what_to_install_before_anything_is_written(tmp_path: Path) -> None:
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", "policy.backend=vllm"])
    with pytest.raises(ConfigError, match=r'\'vllm\': vLLM is not installed: pip install "hgpo\[vllm\]"'):
        train(config, Reporter(Console(quiet=True)))
    assert not list(tmp_path.iterdir())
