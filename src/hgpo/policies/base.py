"""The one interface between rollouts and whatever answers a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Response:
    """What a policy answered to one prompt.

    `log_probs` are those of the sampled tokens under the distribution they were drawn from (temperature applied).
    A policy without a model (scripted) leaves the three arrays empty.

    Example: `Response("go to fridge 1", prompt_ids=int32[57], token_ids=int32[5], log_probs=float32[5],
    finished=True)`: four words and the end token.
    """

    text: str
    prompt_ids: np.ndarray
    token_ids: np.ndarray
    log_probs: np.ndarray
    finished: bool  # ended by itself (end-of-turn token), not cut at the response limit


class PromptTooLong(ValueError):
    """A prompt has more tokens than the policy takes. Prompts are never cut: a cut one would train on other text."""

    def __init__(self, *, index: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {index} has {tokens} tokens, the limit is {limit}: "
            "shorten the memory (history_length) or raise max_prompt_tokens"
        )
        self.index = index
        self.tokens = tokens
        self.limit = limit


class PromptCounter(Protocol):
    """Knows how many tokens a prompt takes, and how many it may."""

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        ...

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt it takes; None where there is no limit."""
        ...


class Policy(PromptCounter, Protocol):
    """Answers prompts. Each prompt is the text of one user message; chat templates are the policy's business."""

    def generate(self, prompts: Sequence[str], *, temperature: float, rng: np.random.Generator) -> list[Response]:
        """One response per prompt, in order. `temperature` 0 is greedy. All randomness comes from `rng`.

        A prompt longer than `max_prompt_tokens` is a `PromptTooLong`.
        """
        ...
