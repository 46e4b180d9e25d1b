"""A batch policy behind the interface of an async policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, PolicyWrapper, Request, Response, is_async

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batched(Generic[Item, Result]):
    """Calls a function of a batch with the items of all concurrent calls in one turn of the event loop."""

    def __init__(self, answer: Callable[[list[Item]], Sequence[Result | Exception]]) -> None:
        """`answer` returns one result per item; an exception among them is raised for its item only."""
        self._answer_batch = answer
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []

    async def __call__(self, item: Item) -> Result:
        """The result of one item; an exception that the function raises is raised for all items of the batch."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._answer)  # after all coroutines that have a result have sent their next item
        self._waiting.append((item, answer))
        return await answer

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        results: Sequence[Result | BaseException]
        try:
            results = self._answer_batch([item for item, _ in waiting])
        except BaseException as error:  # the event loop would only log it
            results = [error] * len(waiting)
        for (_, answer), result in zip(waiting, results, strict=True):
            if answer.done():
                continue
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)


def as_async(policy: AnyPolicy) -> AsyncPolicy:
    """The policy itself if it is async, else an `AsyncBatcher` around it."""
    return policy if is_async(policy) else AsyncBatcher(cast(BatchPolicy, policy))


class AsyncBatcher(PolicyWrapper[BatchPolicy]):
    """Batches concurrent requests. See `hgpo.policies.base.AsyncPolicy`."""

    def __init__(self, policy: BatchPolicy) -> None:
        """`policy` answers the batches."""
        super().__init__(policy)
        self._generate: dict[float, Batched[Request, Response]] = {}  # by temperature

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`.
        """
        if temperature not in self._generate:
            self._generate[temperature] = Batched(partial(self._policy.generate, temperature=temperature))
        return await self._generate[temperature](request)
