"""A policy without a model: a function answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hgpo.messages import Conversation, as_text
from hgpo.policies.base import NO_LOG_PROBS, NO_TOKENS, Request, Response


class ScriptedPolicy:
    """Answers each prompt with `answer(prompt, rng)`, `rng` being the request's own; temperature is ignored."""

    max_prompt_tokens: int | None = None
    numbers_per_response = 1  # the seed of `rng`

    def __init__(self, answer: Callable[[str, np.random.Generator], str]) -> None:
        self._answer = answer

    def generate(self, requests: Sequence[Request], *, temperature: float) -> list[Response]:
        """One answer per request, without tokens or log-probs."""
        texts = [self._answer(as_text(request.prompt), _generator(request)) for request in requests]
        return [Response(text, NO_TOKENS, NO_TOKENS, NO_LOG_PROBS, True) for text in texts]

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """White-space separated words: a stand-in, as there is no tokenizer."""
        return [len(as_text(prompt).split()) for prompt in prompts]

    def take_weights(self, model: Any) -> None:
        """There are none."""


def _generator(request: Request) -> np.random.Generator:
    """The same numbers, or none, give the same generator."""
    return np.random.default_rng(request.seed or 0)
