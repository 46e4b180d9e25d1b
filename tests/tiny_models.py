"""Tiny models and samples that tests train and sample from."""

from __future__ import annotations

import copy
import string
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo.policies.base import BatchPolicy, Response, draw_requests
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.tiny import build_model, build_tokenizer
from hgpo.policies.weights import Precision
from hgpo.training.batching import Sample

# Models this small gain nothing from a second thread, and lose a hundredfold where the second core is busy.
torch.set_num_threads(1)

WORDS = [*string.ascii_lowercase, "take", "apple", "from", "fridge", "go", "to", "1", "2"]


def tiny_model(
    *,
    seed: int = 0,
    layers: int = 2,
    initializer_range: float = 0.16,
    max_prompt_tokens: int = 48,
    max_response_tokens: int = 8,
    precision: Precision = "auto",
) -> LanguageModel:
    """An untrained model of 30,000 parameters over `WORDS`, its first weights large enough that answers differ."""
    tokenizer = build_tokenizer([" ".join(WORDS)])
    model = copy.deepcopy(_built(len(tokenizer), layers, initializer_range, seed))
    return LanguageModel.of(model, tokenizer, GenerationLimits(max_prompt_tokens, max_response_tokens, precision))


@cache
def _built(vocabulary: int, layers: int, initializer_range: float, seed: int) -> Any:
    """The model that `tiny_model` copies: to build it takes several times as long."""
    return build_model(
        vocabulary,
        hidden_size=32,
        layers=layers,
        heads=2,
        max_tokens=64,
        initializer_range=initializer_range,
        seed=seed,
    )


def save_tiny_model(folder: Path | str, texts: Iterable[str], **model_options: Any) -> Path:
    """Build tokenizer and model for `texts` and write them to `folder` in Hugging Face format; returns the folder.

    `model_options` go to `build_model`.
    """
    tokenizer = build_tokenizer(texts)
    model = build_model(len(tokenizer), **model_options)
    folder = Path(folder)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def tiny_policy(
    *, max_batch_size: int | None = None, max_batch_tokens: int | None = None, **options: Any
) -> TransformersPolicy:
    """The policy of `tiny_model(**options)`."""
    return TransformersPolicy(tiny_model(**options), max_batch_size=max_batch_size, max_batch_tokens=max_batch_tokens)


def generate(
    policy: BatchPolicy, prompts: Sequence[str], *, temperature: float = 1.0, rng: np.random.Generator | None = None
) -> list[Response]:
    """Answers to prompts, from a generator of seed 0 unless another is given."""
    rng = rng or np.random.default_rng(0)
    return policy.generate(draw_requests(prompts, policy, rng, temperature=temperature), temperature=temperature)


def random_prompts(count: int, *, seed: int = 0, longest: int = 30) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=int(rng.integers(1, longest)))) for _ in range(count)]


def tiny_samples(count: int, *, seed: int = 0, longest: int = 30) -> list[Sample]:
    """Samples `tiny_policy(seed=0)` drew itself, with random advantages. Their arrays are shared by all callers."""
    return list(_drawn(count, seed, longest))


@cache
def _drawn(count: int, seed: int, longest: int) -> tuple[Sample, ...]:
    rng = np.random.default_rng(seed)
    responses = generate(tiny_policy(), random_prompts(count, seed=seed, longest=longest), rng=rng)
    return tuple(
        Sample(response.prompt_ids, response.token_ids, response.log_probs, float(rng.normal()))
        for response in responses
    )
