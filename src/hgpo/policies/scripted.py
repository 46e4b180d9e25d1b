"""A policy without a model: a function answers. For tests, baselines and trying out an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hgpo.policies.base import Response

_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_LOG_PROBS = np.empty(0, dtype=np.float32)


class ScriptedPolicy:
    """Answers each prompt with `answer(prompt, rng)`; temperature is ignored.

    Example: `ScriptedPolicy(lambda prompt, rng: "look")`.
    """

    max_prompt_tokens: int | None = None

    def __init__(self, answer: Callable[[str, np.random.Generator], str]) -> None:
        self._answer = answer

    def generate(self, prompts: Sequence[str], *, temperature: float, rng: np.random.Generator) -> list[Response]:
        """One answer per prompt, without tokens or log-probs."""
        return [
            Response(self._answer(prompt, rng), _NO_TOKENS, _NO_TOKENS, _NO_LOG_PROBS, finished=True)
            for prompt in prompts
        ]

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        """White-space separated words: a stand-in, as there is no tokenizer."""
        return [len(prompt.split()) for prompt in prompts]
