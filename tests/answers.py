"""Asking a policy that answers each request in its own time, and comparing what it says with a forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hgpo.policies.base import AsyncPolicy, Response, draw_requests
from hgpo.policies.language_model import LanguageModel
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs


def respond(
    policy: AsyncPolicy, prompts: list[str], *, temperature: float = 1.0, seed: int = 0, backwards: bool = False
) -> list[Response]:
    """Answers to prompts that are all sent at once, in the order of the prompts whatever order they are sent in."""
    requests = draw_requests(prompts, policy, np.random.default_rng(seed), temperature=temperature)
    order = requests[::-1] if backwards else requests

    async def together() -> list[Response]:
        return await asyncio.gather(*(policy.respond(one, temperature=temperature) for one in order))

    responses = asyncio.run(together())
    return responses[::-1] if backwards else responses


def gaps(responses: list[Response], model: Any, *, temperature: float = 1.0, precision: str = "float32") -> Any:
    """How far reported log-probs are from those of a forward pass of `model`, float32[tokens]."""
    samples = [Sample(one.prompt_ids, one.token_ids, one.log_probs, 0.0) for one in responses]
    scored = response_log_probs(model, samples, temperature=temperature or 1.0, precision=precision)
    return np.abs(np.concatenate(scored) - np.concatenate([one.log_probs for one in responses]))


def texts(responses: list[Response]) -> list[str]:
    return [one.text for one in responses]


def check_an_adapter_is_sampled_with(
    make_policy: Callable[[LanguageModel], AsyncPolicy], language_model: LanguageModel, prompts: list[str]
) -> None:
    """Put an adapter on the model, change it as an update would, hand it over, and compare what is said with it."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(language_model.model, settings).eval()
    policy = make_policy(LanguageModel.of(adapted, language_model.tokenizer, language_model.limits))
    plain = respond(policy, prompts, temperature=0)

    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    policy.take_weights(adapted)
    trained = respond(policy, prompts, temperature=0)

    assert texts(trained) != texts(plain)
    assert gaps(trained, adapted).mean() <= (1e-5 if language_model.model.dtype == torch.float32 else 0.05)
    assert any("lora_B" in name for name, _ in adapted.named_parameters())  # it is still there to be trained
