"""Policies around other policies: `AsyncBatcher` for batch policies, `PricedPolicy` for costs and their limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from hgpo.messages import Conversation
from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, Policy, Request, RequestUsage, Response, is_async

_MILLION = 1_000_000
Inner = TypeVar("Inner", bound=Policy)


class PolicyWrapper(Generic[Inner]):
    """Forwards the interface `Policy` to another policy."""

    def __init__(self, policy: Inner) -> None:
        """Wrap `policy`."""
        self._policy = policy

    @property
    def max_prompt_tokens(self) -> int | None:
        """Most tokens of a prompt."""
        return self._policy.max_prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """Random numbers in a request."""
        return self._policy.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt."""
        return self._policy.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model` from now on."""
        self._policy.take_weights(model)


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

    Open requests are completed when the limit is reached, so the cost can exceed it by theirs.

    Attributes:
        cost: of all responses so far.
    """

    def __init__(self, policy: AsyncPolicy, prices: Prices, *, limit: float | None = None, cost: float = 0.0) -> None:
        """Wrap `policy`; `cost` is the initial cost."""
        super().__init__(policy)
        self._prices, self._limit = prices, limit
        self.cost = cost

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request, with its cost in `usage`.

        Raises:
            OverBudget: the limit is reached.
        """
        if self._limit is not None and self.cost >= self._limit:
            raise OverBudget(f"the limit of {self._limit:g} is reached: the cost is {self.cost:.4f}")
        response = await self._policy.respond(request, temperature=temperature)
        usage = usage_of(response)
        cost = self._prices.of(usage)
        self.cost += cost
        return replace(response, usage=replace(usage, cost=cost))


def usage_of(response: Response) -> RequestUsage:
    """The usage of a response; if its policy does not report it, its tokens and one request without duration."""
    if response.usage is not None:
        return response.usage
    return RequestUsage(len(response.prompt_ids), len(response.token_ids), requests=1, seconds=0.0)
