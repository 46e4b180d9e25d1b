"""A batch policy behind the interface of an async policy."""

from __future__ import annotations

import asyncio
from typing import cast

from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, PolicyWrapper, Request, Response, is_async


def as_async(policy: AnyPolicy) -> AsyncPolicy:
    """The policy itself if it is async, else an `AsyncBatcher` around it."""
    return policy if is_async(policy) else AsyncBatcher(cast(BatchPolicy, policy))


class AsyncBatcher(PolicyWrapper[BatchPolicy]):
    """Batches concurrent requests. See `hgpo.policies.base.AsyncPolicy`."""

    def __init__(self, policy: BatchPolicy) -> None:
        """`policy` answers the batches."""
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
            loop.call_soon(self._answer)  # after all coroutines that have a response have sent their next request
        self._waiting.setdefault(temperature, []).append((request, answer))
        return await answer

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for temperature, asked in waiting.items():
            try:
                responses = self._policy.generate([request for request, _ in asked], temperature=temperature)
            except BaseException as error:  # of every request in the batch; the event loop would only log it
                for _, answer in asked:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), response in zip(asked, responses, strict=True):
                if not answer.done():
                    answer.set_result(response)
