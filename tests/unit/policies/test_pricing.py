import asyncio

import pytest

from hgpo.policies.async_batcher import AsyncBatcher
from hgpo.policies.base import Request, RequestUsage
from hgpo.policies.pricing import OverBudget, PricedPolicy, Prices, usage_of
from scripted_policy import ScriptedPolicy
from tiny_models import generate, tiny_policy


class Spending(AsyncBatcher):
    """Each answer takes a thousand prompt and a hundred response tokens."""

    async def respond(self, request, *, temperature):
        from dataclasses import replace

        response = await super().respond(request, temperature=temperature)
        return replace(response, usage=RequestUsage(1000, 100, requests=2, seconds=0.5))


def ask(policy, times):
    async def work():
        for _ in range(times):
            await policy.respond(Request("a"), temperature=0)

    asyncio.run(work())


def test_a_million_tokens_cost_their_price():
    assert Prices(prompt=2.0, response=10.0).of(RequestUsage(1000, 100, 1, 0.0)) == pytest.approx(0.003)


def test_nothing_is_asked_once_the_limit_is_reached():
    policy = PricedPolicy(Spending(ScriptedPolicy(lambda prompt, rng: "x")), Prices(2, 10), limit=0.010, cost=0.002)
    with pytest.raises(OverBudget, match=r"the limit of 0.01 is reached: the cost is 0.0110"):
        ask(policy, 10)
    assert policy.cost == pytest.approx(0.011)


def test_a_policy_that_does_not_say_is_counted_by_its_tokens():
    [response] = generate(tiny_policy(), ["go"])
    usage = usage_of(response)
    assert (usage.prompt_tokens, usage.response_tokens) == (len(response.prompt_ids), len(response.token_ids))
