"""A policy that answers batches, for those who ask one by one."""

from __future__ import annotations

import asyncio

from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, Request, Response, is_async
from hgpo.policies.wrapped import Wrapped


def answering_apart(policy: AnyPolicy) -> AsyncPolicy:
    """The policy in the form that answers each request in its own time."""
    return policy if is_async(policy) else InTurn(policy)  # type: ignore[arg-type]  # it is a `BatchPolicy` then


class InTurn(Wrapped[BatchPolicy]):
    """Answers together whatever is asked before everybody waits. See `hgpo.policies.base.AsyncPolicy`."""

    def __init__(self, policy: BatchPolicy) -> None:
        """`policy` answers."""
        super().__init__(policy)
        self._waiting: dict[float, list[tuple[Request, asyncio.Future[Response]]]] = {}  # by temperature

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
                responses = self._behind.generate([request for request, _ in asked], temperature=temperature)
            except Exception as error:  # theirs who asked
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), response in zip(asked, responses, strict=True):
                if not answer.done():
                    answer.set_result(response)
