"""Policies around other policies: batches of concurrent requests, and costs with a limit."""

import asyncio

import numpy as np
import pytest

from hgpo.policies.base import AnswerFailed, Request, RequestUsage
from hgpo.policies.wrappers import AsyncBatcher, OverBudget, PricedPolicy, Prices, as_async, usage_of
from scripted_policy import ScriptedPolicy
from tiny_models import generate, tiny_policy


class Counting(ScriptedPolicy):
    """Notes what it is asked together."""

    def __init__(self):
        super().__init__(lambda prompt, rng: prompt.upper())
        self.batches = []

    def generate(self, requests, *, temperature):
        self.batches.append((temperature, [request.prompt for request in requests]))
        return super().generate(requests, temperature=temperature)


def ask(policy, prompts, turns=1, temperature=1.0):
    async def one(prompt):
        return [(await policy.respond(Request(prompt), temperature=temperature)).text for _ in range(turns)]

    async def together():
        return await asyncio.gather(*map(one, prompts))

    return asyncio.run(together())


def test_whoever_asks_in_one_turn_is_answered_together():
    policy = Counting()
    assert ask(AsyncBatcher(policy), ["a", "b", "c"], turns=2) == [["A", "A"], ["B", "B"], ["C", "C"]]
    assert policy.batches == [(1.0, ["a", "b", "c"])] * 2


def test_temperatures_are_kept_apart():
    policy = Counting()

    async def both():
        apart = AsyncBatcher(policy)
        await asyncio.gather(*(apart.respond(Request("a"), temperature=one) for one in (0.0, 1.0, 0.0)))

    asyncio.run(both())
    assert policy.batches == [(0.0, ["a", "a"]), (1.0, ["a"])]


def test_an_error_is_theirs_who_asked():
    class Failing(ScriptedPolicy):
        def generate(self, requests, *, temperature):
            raise FloatingPointError("broken")

    with pytest.raises(FloatingPointError, match="broken"):
        ask(AsyncBatcher(Failing(lambda prompt, rng: "")), ["a", "b"])


@pytest.mark.parametrize("responses", [0, 3])
def test_too_few_or_too_many_responses_are_an_error(responses):
    class Losing(ScriptedPolicy):
        def generate(self, requests, *, temperature):
            return [*super().generate(requests, temperature=temperature), None][:1] * responses

    async def within_a_second():
        policy = AsyncBatcher(Losing(lambda prompt, rng: ""))
        return await asyncio.wait_for(
            asyncio.gather(*(policy.respond(Request(prompt), temperature=1.0) for prompt in "ab")), 1
        )

    with pytest.raises(RuntimeError, match=f"a batch of 2 has {responses} results"):
        asyncio.run(within_a_second())


def test_a_policy_that_answers_apart_already_stays_as_it_is():
    apart = AsyncBatcher(Counting())
    assert as_async(apart) is apart
    assert isinstance(as_async(Counting()), AsyncBatcher)
    assert np.isscalar(apart.numbers_per_response)


class Spending(AsyncBatcher):
    """Each answer takes a thousand prompt and a hundred response tokens."""

    async def respond(self, request, *, temperature):
        from dataclasses import replace

        response = await super().respond(request, temperature=temperature)
        return replace(response, usage=RequestUsage(1000, 100, requests=2, seconds=0.5))


def spend(policy, times):
    async def work():
        for _ in range(times):
            await policy.respond(Request("a"), temperature=0)

    asyncio.run(work())


def test_a_million_tokens_cost_their_price():
    assert Prices(prompt=2.0, response=10.0).of(RequestUsage(1000, 100, 1, 0.0)) == pytest.approx(0.003)


def test_nothing_is_asked_once_the_limit_is_reached():
    policy = PricedPolicy(Spending(ScriptedPolicy(lambda prompt, rng: "x")), Prices(2, 10), limit=0.010, cost=0.002)
    with pytest.raises(OverBudget, match=r"the limit of 0.01 is reached: the cost is 0.0110"):
        spend(policy, 10)
    assert policy.cost == pytest.approx(0.011)


def test_an_answer_that_cannot_be_used_costs_as_much():
    class Unusable(Spending):
        async def respond(self, request, *, temperature):
            raise AnswerFailed("a tool call", usage=(await super().respond(request, temperature=temperature)).usage)

    policy = PricedPolicy(Unusable(ScriptedPolicy(lambda prompt, rng: "x")), Prices(2, 10), limit=0.002)
    with pytest.raises(AnswerFailed) as failed:
        spend(policy, 1)
    assert failed.value.usage.cost == policy.cost == pytest.approx(0.003)
    with pytest.raises(OverBudget):
        spend(policy, 1)


def test_a_policy_that_does_not_say_is_counted_by_its_tokens():
    [response] = generate(tiny_policy(), ["go"])
    usage = usage_of(response)
    assert (usage.prompt_tokens, usage.response_tokens) == (len(response.prompt_ids), len(response.token_ids))
