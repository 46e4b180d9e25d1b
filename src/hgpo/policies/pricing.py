"""Prices of tokens, and a limit on the cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hgpo.policies.base import AsyncPolicy, PolicyWrapper, Request, RequestUsage, Response

_MILLION = 1_000_000


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
        if not cost:
            return response
        self.cost += cost
        return replace(response, usage=replace(usage, cost=cost))


def usage_of(response: Response) -> RequestUsage:
    """The usage of a response; if its policy does not report it, its tokens and one request without duration."""
    if response.usage is not None:
        return response.usage
    return RequestUsage(len(response.prompt_ids), len(response.token_ids), requests=1, seconds=0.0)
