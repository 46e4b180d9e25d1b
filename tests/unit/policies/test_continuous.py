"""transformers' continuous batching as a policy: its answers are those of the trained module."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from answers import check_an_adapter_is_sampled_with, gaps, respond, texts
from corridor import CorridorSuite
from hgpo.agents.prompts import get_template
from hgpo.envs.limit import LimitedSuite
from hgpo.policies.base import draw_requests
from hgpo.policies.continuous import make_continuous_policy
from hgpo.policies.language_model import LanguageModel, Usage
from hgpo.rollout.collect import collect
from hgpo.rollout.rules import RolloutRules
from real_model import real_model_file
from tiny_models import generate, random_prompts, tiny_model, tiny_policy


@pytest.mark.parametrize("temperature", [1.0, 0.4, 0.0])
def test_log_probs_equal_those_of_a_fresh_forward_pass(temperature: float) -> None:
    language_model = tiny_model()
    policy = make_continuous_policy(language_model, max_batch_size=8)

    responses = respond(policy, random_prompts(40), temperature=temperature)

    assert gaps(responses, language_model.model, temperature=temperature).max() <= 1e-4
    ends = set(language_model.end_tokens)
    for one in responses:
        assert 1 <= len(one.token_ids) <= 8
        assert one.finished == (int(one.token_ids[-1]) in ends)
        assert one.finished or len(one.token_ids) == 8
        assert not ends.intersection(one.token_ids[:-1].tolist())
    assert {one.finished for one in responses} == {True, False}


def test_greedy_answers_are_those_of_the_built_in_backend() -> None:
    prompts = random_prompts(30)
    expected = generate(tiny_policy(), prompts, temperature=0)

    responses = respond(make_continuous_policy(tiny_model(), max_batch_size=4), prompts, temperature=0)

    assert texts(responses) == texts(expected)
    for one, other in zip(responses, expected, strict=True):
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist()
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


def test_the_same_requests_get_the_same_answers_and_other_seeds_others() -> None:
    policy = make_continuous_policy(tiny_model(), max_batch_size=8)
    prompts = random_prompts(20)

    first = texts(respond(policy, prompts))

    assert texts(respond(policy, prompts)) == first
    assert texts(respond(policy, prompts, seed=1)) != first


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    language_model = tiny_model(max_response_tokens=1)
    responses = respond(make_continuous_policy(language_model), ["go to fridge"] * 2000, temperature=0.7)

    counts = np.bincount([int(one.token_ids[0]) for one in responses], minlength=len(language_model.tokenizer))
    with torch.no_grad():
        logits_V = language_model.model(torch.tensor([responses[0].prompt_ids.tolist()])).logits[0, -1]
    expected_V = (logits_V / 0.7).softmax(-1).numpy() * 2000
    assert (np.abs(counts - expected_V) <= 5 * np.sqrt(expected_V) + 5).all()


def test_an_update_in_place_is_seen_and_cached_prefixes_are_forgotten() -> None:
    language_model = tiny_model()
    policy = make_continuous_policy(language_model)
    prompts = random_prompts(20)
    before = respond(policy, prompts, temperature=0)

    with torch.no_grad():
        for parameter in language_model.model.parameters():
            parameter.mul_(1.3)
    policy.take_weights(language_model.model)
    after = respond(policy, prompts, temperature=0)

    assert gaps(after, language_model.model).max() <= 1e-4
    assert gaps(before, language_model.model).max() > 0.01


def test_weights_of_the_computing_type_are_shared_and_training_keeps_its_own_attention() -> None:
    language_model = tiny_model()
    trained = language_model.model

    policy = make_continuous_policy(language_model)
    respond(policy, ["go"])

    sampled = policy._engine._module  # type: ignore[attr-defined]
    assert sampled.model.norm.weight is trained.model.norm.weight
    assert sampled.config._attn_implementation == "paged|sdpa"
    assert trained.config._attn_implementation == "sdpa"


def test_bfloat16_arithmetic_takes_a_copy_that_is_renewed() -> None:
    language_model = tiny_model(precision="bfloat16")
    policy = make_continuous_policy(language_model)
    prompts = random_prompts(40)

    assert gaps(respond(policy, prompts), language_model.model, precision="bfloat16").mean() <= 0.05
    with torch.no_grad():
        for parameter in language_model.model.parameters():
            parameter.mul_(1.3)
    assert gaps(respond(policy, prompts), language_model.model, precision="bfloat16").mean() > 0.05
    policy.take_weights(language_model.model)
    assert gaps(respond(policy, prompts), language_model.model, precision="bfloat16").mean() <= 0.05
    assert language_model.model.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_sampled_with(dtype: torch.dtype) -> None:
    language_model = tiny_model()
    language_model.model.to(dtype)
    check_an_adapter_is_sampled_with(make_continuous_policy, language_model, random_prompts(20))


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_many_episodes_are_collected_in_the_same_way_every_time(temperature: float) -> None:
    language_model = tiny_model(max_prompt_tokens=56, max_response_tokens=4)
    tasks = LimitedSuite(CorridorSuite(), max_steps=5).tasks("train")
    rules = RolloutRules(get_template("compact"), history_length=0, temperature=temperature)

    def steps() -> list[Any]:
        policy = make_continuous_policy(language_model, max_batch_size=16)
        return collect(tasks, policy, rules, np.random.default_rng(0), group_size=12)

    first = steps()

    assert len({step.trajectory for step in first}) == 36
    assert [step.response for step in steps()] == [step.response for step in first]


def test_answers_at_two_temperatures_are_not_mixed() -> None:
    policy = make_continuous_policy(tiny_model())
    [sampled] = draw_requests(["go"], policy, np.random.default_rng(0), temperature=1.0)

    async def both() -> None:
        await asyncio.gather(policy.respond(sampled, temperature=1.0), policy.respond(sampled, temperature=0))

    with pytest.raises(ValueError, match="two temperatures"):
        asyncio.run(both())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_real_model_is_sampled_as_it_is_scored(precision: Any) -> None:
    usage = Usage(256, 24, precision)
    language_model = LanguageModel.from_pretrained(real_model_file(), usage, device="cpu", dtype="float32")
    policy = make_continuous_policy(language_model)
    prompts = ["What is the capital of France?", "Name a fruit.", "You are in a kitchen. What do you do next?"] * 4

    responses = respond(policy, prompts)
    gap = gaps(responses, language_model.model, precision=precision)

    assert gap.max() <= 1e-3 if precision == "float32" else gap.mean() <= 0.07
    [answer] = respond(policy, prompts[:1], temperature=0)
    assert "Paris" in answer.text
    assert answer.finished
