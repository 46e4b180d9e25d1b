"""What a policy that stands before another passes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from hgpo.conversation import Conversation
from hgpo.policies.base import Policy

Behind = TypeVar("Behind", bound=Policy)


class Wrapped(Generic[Behind]):
    """All of `hgpo.policies.base.Policy`, as another policy says it."""

    def __init__(self, policy: Behind) -> None:
        """`policy` is the one behind."""
        self._behind = policy

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt it takes."""
        return self._behind.max_prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """How many random numbers a request brings."""
        return self._behind.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes."""
        return self._behind.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the weights of `model` from now on."""
        self._behind.take_weights(model)
