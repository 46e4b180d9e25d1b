"""Prices, and a limit on what is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hgpo.policies.base import AsyncPolicy, PolicyWrapper, Request, RequestUsage, Response

_MILLION = 1_000_000


class OverBudget(RuntimeError):
    """The limit is reached: nothing more is asked."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in any one currency.

    Attributes:
        prompt: of prompt tokens.
        response: of response tokens.
    """

    prompt: float = 0.0
    response: float = 0.0

    def of(self, usage: RequestUsage) -> float:
        """The cost of a request."""
        return (usage.prompt_tokens * self.prompt + usage.response_tokens * self.response) / _MILLION


FREE = Prices()


class PricedPolicy(PolicyWrapper[AsyncPolicy]):
    """Counts what another policy's answers cost, and asks nothing more once that is too much.

    Answers that are under way when the limit is reached still come, so it is passed by at most those.

    Attributes:
        cost: of all answers so far.
    """

    def __init__(self, policy: AsyncPolicy, prices: Prices, *, limit: float | None = None, cost: float = 0.0) -> None:
        """`cost` is what was spent before."""
        super().__init__(policy)
        self._prices, self._limit = prices, limit
        self.cost = cost

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request, with its cost in `usage`.

        Raises:
            OverBudget: the limit is reached.
        """
        if self._limit is not None and self.cost >= self._limit:
            raise OverBudget(f"the limit of {self._limit:g} is reached: {self.cost:.4f} were spent")
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
