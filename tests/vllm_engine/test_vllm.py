"""vLLM as a policy, run for real: its answers are those of the trained module, before and after an update."""

from __future__ import annotations

import asyncio
import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from answers import check_an_adapter_is_sampled_with, gaps, respond, texts
from corridor import CorridorSuite
from hgpo.agents import TEMPLATES
from hgpo.envs.wrappers import LimitedSuite
from hgpo.policies.base import Request
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.tiny import build_model, build_tokenizer
from hgpo.policies.vllm import EngineFailed, VllmPolicy, make_vllm_policy
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.runner import collect
from real_model import real_model_file
from tiny_models import WORDS, generate, random_prompts

PROMPTS = ["What is the capital of France?", "Name a fruit.", "You are in a kitchen. What do you do next?"] * 4


def tiny_model() -> LanguageModel:
    """On CPUs, vLLM's attention takes heads of 32 dimensions and more."""
    tokenizer = build_tokenizer([" ".join(WORDS)])
    model = build_model(len(tokenizer), hidden_size=64, heads=2, max_tokens=64, initializer_range=0.12)
    return LanguageModel.of(model, tokenizer, GenerationLimits(56, 8, "float32"))


def disturb(model: Any, share: float = 0.02) -> None:
    """What an update does, only more of it."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = float(parameter.std(unbiased=False))
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * scale * share)


@pytest.fixture(scope="module")
def tiny() -> VllmPolicy:
    return make_vllm_policy(tiny_model())


@pytest.mark.parametrize("temperature", [1.0, 0.4, 0.0])
def test_log_probs_equal_those_of_a_fresh_forward_pass(tiny: VllmPolicy, temperature: float) -> None:
    responses = respond(tiny, random_prompts(40), temperature=temperature)

    assert gaps(responses, tiny.language_model.model, temperature=temperature).max() <= 1e-4
    ends = set(tiny.language_model.end_tokens)
    for one in responses:
        assert 1 <= len(one.token_ids) <= 8
        assert one.finished == (int(one.token_ids[-1]) in ends)
        assert one.finished or len(one.token_ids) == 8
    assert {one.finished for one in responses} == {True, False}


def test_more_prompts_than_are_read_at_once_are_answered_each_by_its_seed(tiny: VllmPolicy) -> None:
    """Whole: in pieces, vLLM would turn back the generator of a request, which ends the engine on a CPU."""
    prompts = [" ".join(WORDS[(first + place) % len(WORDS)] for place in range(40)) for first in range(250)]

    responses = respond(tiny, prompts)

    assert len(responses) == 250
    assert gaps(responses, tiny.language_model.model).max() <= 1e-4


def test_greedy_answers_are_those_of_the_built_in_backend(tiny: VllmPolicy) -> None:
    prompts = random_prompts(30)
    expected = generate(TransformersPolicy(tiny.language_model), prompts, temperature=0)

    responses = respond(tiny, prompts, temperature=0)

    assert texts(responses) == texts(expected)
    for one, other in zip(responses, expected, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


def test_a_requests_seed_alone_decides_its_answer(tiny: VllmPolicy) -> None:
    prompts = random_prompts(20)
    together = texts(respond(tiny, prompts))

    assert texts(respond(tiny, prompts)) == together
    assert texts(respond(tiny, prompts, backwards=True)) == together
    assert texts(respond(tiny, prompts, seed=1)) != together


def test_many_episodes_are_collected_in_the_same_way_every_time(tiny: VllmPolicy) -> None:
    tasks = LimitedSuite(CorridorSuite(), 5).tasks("train")
    rules = RolloutRules(TEMPLATES.get("compact"), history_length=0, temperature=1.0)

    first, second = (collect(tasks, tiny, rules, np.random.default_rng(0), group_size=12) for _ in range(2))

    assert len({step.trajectory for step in first}) == 36
    assert [step.response for step in second] == [step.response for step in first]


def test_a_policy_outlives_another_one_in_the_same_process(tiny: VllmPolicy) -> None:
    """As in a notebook: a new policy is made before the old one of that name is dropped."""
    prompts = random_prompts(5)
    expected = texts(respond(tiny, prompts))
    policy = make_vllm_policy(tiny_model())
    old = weakref.ref(policy._engine._engine.engine_core)
    policy = make_vllm_policy(tiny_model())
    gc.unfreeze()  # vLLM exempts what there is from garbage collection when it starts
    gc.collect()

    assert old() is None
    for one in (policy, tiny):
        assert texts(respond(one, prompts)) == expected


def test_an_engine_that_dies_in_a_collection_ends_it_with_its_error() -> None:
    policy: Any = make_vllm_policy(tiny_model())
    left = [5]

    def die(model: torch.nn.Module) -> None:
        def count_down(*_: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise ZeroDivisionError("the machine is on fire")

        model.register_forward_pre_hook(count_down)

    policy._engine._engine.apply_model(die)
    tasks = CorridorSuite().tasks("train")
    rules = RolloutRules(TEMPLATES.get("compact"), history_length=0, temperature=1.0)

    for _ in range(2):  # it does not come back to life
        with pytest.raises(EngineFailed, match=r"policy backend 'vllm' failed .*the machine is on fire"):
            collect(tasks, policy, rules, np.random.default_rng(0), group_size=8)


def test_an_episode_that_is_cancelled_leaves_nothing_in_the_engine(tiny: Any) -> None:
    async def give_up() -> None:
        answer = asyncio.ensure_future(tiny.respond(Request("go", np.zeros(1)), temperature=1.0))
        await asyncio.sleep(0)
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)

    asyncio.run(give_up())

    assert not tiny._engine._engine.has_unfinished_requests()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_handed_over_merged(dtype: torch.dtype) -> None:
    language_model = tiny_model()
    language_model.model.to(dtype)
    check_an_adapter_is_sampled_with(make_vllm_policy, language_model, random_prompts(20))


# Rounding in 30 layers; a rare token's log-prob has most of it.
LIMITS = {"float32": {"mean": 2e-5, "max": 3e-4}, "bfloat16": {"mean": 0.07, "max": 1.0}}


@pytest.fixture(scope="module")
def real() -> LanguageModel:
    return LanguageModel.from_pretrained(real_model_file(), device="cpu", dtype="float32")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_real_model_is_sampled_as_it_is_scored_also_after_an_update(real: LanguageModel, precision: Any) -> None:
    model = copy.deepcopy(real.model)
    policy = make_vllm_policy(LanguageModel.of(model, real.tokenizer, GenerationLimits(256, 16, precision)))
    limits = LIMITS[precision]
    before = respond(policy, PROMPTS)
    [answer] = respond(policy, PROMPTS[:1], temperature=0)
    if precision == "float32":  # the two likeliest first words differ by 8 %, which is within bfloat16's rounding
        assert "Paris" in answer.text
        assert answer.finished
    for temperature, responses in ((1.0, before), (0.0, [answer])):
        gap = gaps(responses, model, temperature=temperature, precision=precision)
        assert gap.mean() <= limits["mean"]
        assert gap.max() <= limits["max"]

    disturb(model)
    assert gaps(before, model, precision=precision).mean() > 2 * limits["mean"]
    policy.take_weights(model)

    for temperature in (1.0, 0.0):
        gap = gaps(
            respond(policy, PROMPTS, temperature=temperature), model, temperature=temperature, precision=precision
        )
        assert gap.mean() <= limits["mean"]
        assert gap.max() <= limits["max"]
