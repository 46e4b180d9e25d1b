"""A policy that answers batches, for those who ask one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hgpo.conversation import Conversation
from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, Request, Response, is_async


def answering_apart(policy: AnyPolicy) -> AsyncPolicy:
    """The policy in the form that answers each request in its own time."""
    return policy if is_async(policy) else InTurn(policy)  # type: ignore[arg-type]  # it is a `BatchPolicy` then


class InTurn:
    """Answers together whatever is asked before everybody waits. See `hgpo.policies.base.AsyncPolicy`."""

    def __init__(self, policy: BatchPolicy) -> None:
        """`policy` answers."""
        self._policy = policy
        self._waiting: dict[float, list[tuple[Request, asyncio.Future[Response]]]] = {}  # by temperature

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt it takes."""
        return self._policy.max_prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """How many random numbers a request brings."""
        return self._policy.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes."""
        return self._policy.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the weights of `model` from now on."""
        self._policy.take_weights(model)

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._answer)  # after everybody who has got an answer has asked on
        self._waiting.setdefault(temperature, []).append((request, answer))
        return await answer

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for temperature, asked in waiting.items():
            try:
                responses = self._policy.generate([request for request, _ in asked], temperature=temperature)
            except Exception as error:  # theirs who asked
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), response in zip(asked, responses, strict=True):
                if not answer.done():
                    answer.set_result(response)
