"""What a policy with an engine promises to those who wait for its answers, shown on continuous batching."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from corridor import Corridor
from hgpo.agents import get_template
from hgpo.envs.base import Task
from hgpo.policies.base import PromptTooLong, Request, draw_requests
from hgpo.policies.continuous import make_continuous_policy
from hgpo.policies.driver import EngineFailed, EnginePolicy, computing_type
from hgpo.rollout.collect import collect
from hgpo.rollout.rules import RolloutRules
from tiny_models import random_prompts, tiny_model


def requests_for(policy: EnginePolicy, prompts: list[str]) -> list[Request]:
    return draw_requests(prompts, policy, np.random.default_rng(0), temperature=1.0)


def break_after(policy: Any, steps: int) -> None:
    """The module raises in its forward pass once it has been asked `steps` times."""
    left = [steps]

    def count_down(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError("the machine is on fire")

    policy._engine._module.register_forward_pre_hook(count_down)


def test_an_engine_that_fails_fails_every_answer_that_is_awaited_and_all_later_ones() -> None:
    policy = make_continuous_policy(tiny_model())
    break_after(policy, 3)
    requests = requests_for(policy, random_prompts(6))

    async def answers() -> list[Any]:
        waiting = (policy.respond(one, temperature=1.0) for one in requests)
        return await asyncio.gather(*waiting, return_exceptions=True)

    failed = [one for one in asyncio.run(answers()) if isinstance(one, Exception)]
    assert len(failed) > 2
    for error in failed:
        assert isinstance(error, EngineFailed)
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert "policy backend 'continuous' failed with" in str(error)
        assert "ZeroDivisionError: the machine is on fire" in str(error)
    assert all(isinstance(one, EngineFailed) for one in asyncio.run(answers()))


def test_a_collection_ends_with_the_engines_error() -> None:
    policy = make_continuous_policy(tiny_model(max_prompt_tokens=56))
    break_after(policy, 5)
    tasks = [Task(f"{goal}", "corridor", lambda goal=goal: Corridor(goal)) for goal in range(4)]
    rules = RolloutRules(get_template("compact"), history_length=0, temperature=1.0)

    with pytest.raises(EngineFailed, match="the machine is on fire"):
        collect(tasks, policy, rules, np.random.default_rng(0), group_size=8)


class _Broken(Corridor):
    def step(self, action: str) -> Any:
        raise OSError("the simulator is gone")


def test_an_episode_that_fails_leaves_nothing_in_the_engine() -> None:
    policy: Any = make_continuous_policy(tiny_model(max_prompt_tokens=56), max_batch_size=4)
    tasks = [Task("broken", "corridor", lambda: _Broken(2)), Task("whole", "corridor", lambda: Corridor(2))]
    rules = RolloutRules(get_template("compact"), history_length=0, temperature=1.0)

    with pytest.raises(OSError, match="the simulator is gone"):
        collect(tasks, policy, rules, np.random.default_rng(0), group_size=6)

    assert not policy._driver._waiting
    assert not policy._engine._open
    assert not policy._engine._backlog
    [request] = requests_for(policy, ["go to fridge"])
    again = asyncio.run(policy.respond(request, temperature=1.0))
    fresh = asyncio.run(make_continuous_policy(tiny_model(max_prompt_tokens=56)).respond(request, temperature=1.0))
    assert again.token_ids.tolist() == fresh.token_ids.tolist()


def test_short_answers_do_not_wait_for_long_ones() -> None:
    policy = make_continuous_policy(tiny_model())
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
    policy = make_continuous_policy(language_model)
    [request] = requests_for(policy, ["go"])

    async def swap() -> None:
        waiting = asyncio.ensure_future(policy.respond(request, temperature=1.0))
        await asyncio.sleep(0)
        try:
            policy.take_weights(language_model.model)
        finally:
            waiting.cancel()

    with pytest.raises(RuntimeError, match="'continuous' is given weights while it writes 1 answers"):
        asyncio.run(swap())


def test_what_cannot_be_answered_is_refused_at_once() -> None:
    policy = make_continuous_policy(tiny_model())

    with pytest.raises(PromptTooLong, match="the limit is 48"):
        asyncio.run(policy.respond(Request("a " * 60, np.zeros(1)), temperature=1.0))
    with pytest.raises(ValueError, match="brings no numbers to sample by"):
        asyncio.run(policy.respond(Request("go"), temperature=1.0))
    for temperature in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="not a finite number"):
            asyncio.run(policy.respond(Request("go", np.zeros(1)), temperature=temperature))
    with pytest.raises(ValueError, match="exceed the model's 64 positions"):
        make_continuous_policy(tiny_model(max_prompt_tokens=60))


def test_broken_weights_are_no_answer() -> None:
    language_model = tiny_model()
    with torch.no_grad():
        language_model.model.model.norm.weight.fill_(float("nan"))
    policy = make_continuous_policy(language_model)

    with pytest.raises(FloatingPointError, match="weights are broken"):
        asyncio.run(policy.respond(Request("go"), temperature=0))


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_computing_type_is_that_of_the_trained_modules_forward_pass(precision: Any, dtype: torch.dtype) -> None:
    assert computing_type(tiny_model(precision=precision)) == dtype
