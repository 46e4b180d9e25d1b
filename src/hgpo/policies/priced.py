"""Prices, and a limit on what is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hgpo.conversation import Conversation
from hgpo.policies.base import AsyncPolicy, Request, Response, Spent

_MILLION = 1_000_000


class OverBudget(RuntimeError):
    """The limit is reached: nothing more is asked."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens, in whatever currency. Example: `Prices(prompt=0.15, response=0.6)`."""

    prompt: float = 0.0
    response: float = 0.0

    def of(self, spent: Spent) -> float:
        """What an answer cost."""
        return (spent.prompt_tokens * self.prompt + spent.response_tokens * self.response) / _MILLION


FREE = Prices()


class PricedPolicy:
    """Counts what another policy's answers cost, and asks nothing more once that is too much.

    Answers that are under way when the limit is reached still come, so it is passed by at most those.

    Attributes:
        cost: of all answers so far.
    """

    def __init__(self, policy: AsyncPolicy, prices: Prices, *, limit: float | None = None, cost: float = 0.0) -> None:
        """`cost` is what was spent before."""
        self._policy, self._prices, self._limit = policy, prices, limit
        self.cost = cost

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
            OverBudget: the limit is reached.
        """
        if self._limit is not None and self.cost >= self._limit:
            raise OverBudget(f"the limit of {self._limit:g} is reached: {self.cost:.4f} were spent")
        response = await self._policy.respond(request, temperature=temperature)
        self.cost += self._prices.of(spent_on(response))
        return response


def spent_on(response: Response) -> Spent:
    """What an answer took; of a policy that does not say, its tokens and one request without duration."""
    if response.spent is not None:
        return response.spent
    return Spent(len(response.prompt_ids), len(response.token_ids), requests=1, seconds=0.0)
