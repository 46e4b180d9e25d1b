"""Policies around other policies: `AsyncBatcher` for batch policies, `PricedPolicy` for costs and their limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from hgpo.messages import Conversation
from hgpo.policies.base import (
    AnswerFailed,
    AnyPolicy,
    AsyncPolicy,
    BatchPolicy,
    Policy,
    Request,
    RequestUsage,
    Response,
    is_async,
)

_MILLION = 1_000_000
Inner = TypeVar("Inner", bound=Policy)
Item = TypeVar("Item")
Result = TypeVar("Result")


class PolicyWrapper(Generic[Inner]):
    """Forwards the interface `Policy` to another policy."""

    def __init__(self, policy: Inner) -> None:
        """Wrap `policy`."""
        self._policy = policy
        self.max_prompt_tokens = policy.max_prompt_tokens
        self.numbers_per_response = policy.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt."""
        return self._policy.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model` from now on."""
        self._policy.take_weights(model)


class Batched(Generic[Item, Result]):
    """Collects the items of all calls in one turn of the event loop, and passes them to a function as one batch."""

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
            if len(results) != len(waiting):
                raise RuntimeError(f"a batch of {len(waiting)} has {len(results)} results")
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


class OverBudget(RuntimeError):
    """The cost limit is reached."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in any one currency.

    Attributes:
        prompt: price of prompt tokens.
        response: price of response tokens.
    """

    prompt: float = 0.0
    response: float = 0.0

    def of(self, usage: RequestUsage) -> float:
        """The cost of a request."""
        return (usage.prompt_tokens * self.prompt + usage.response_tokens * self.response) / _MILLION


FREE = Prices()


class PricedPolicy(PolicyWrapper[AsyncPolicy]):
    """Adds up the cost of another policy's responses and stops at a limit.

    Requests that are open when the limit is reached are completed, so the total can exceed it by their cost.

    Attributes:
        cost: cost of all answers so far, unusable ones included.
    """

    def __init__(self, policy: AsyncPolicy, prices: Prices, *, limit: float | None = None, cost: float = 0.0) -> None:
        """Wrap `policy`; `cost` is the initial cost."""
        super().__init__(policy)
        self._prices, self._limit = prices, limit
        self.cost = cost

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request, with its cost in `usage`.

        Raises:
            AnswerFailed: there is no usable answer; `usage` has its cost.
            OverBudget: the limit is reached.
        """
        if self._limit is not None and self.cost >= self._limit:
            raise OverBudget(f"the limit of {self._limit:g} is reached: the cost is {self.cost:.4f}")
        try:
            response = await self._policy.respond(request, temperature=temperature)
        except AnswerFailed as error:
            if error.usage is not None:
                error.usage = self._priced(error.usage)
            raise
        usage = self._priced(usage_of(response))
        return replace(response, usage=usage) if usage.cost else response

    def _priced(self, usage: RequestUsage) -> RequestUsage:
        """The usage with its cost, which is added to the total."""
        cost = self._prices.of(usage)
        self.cost += cost
        return replace(usage, cost=cost)


def usage_of(response: Response) -> RequestUsage:
    """The usage of a response; if its policy reports none: its tokens, one request and 0 seconds."""
    if response.usage is not None:
        return response.usage
    return RequestUsage(len(response.prompt_ids), len(response.token_ids), requests=1, seconds=0.0)
