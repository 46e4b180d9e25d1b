import asyncio

import numpy as np
import pytest

from hgpo.policies.async_batcher import AsyncBatcher, as_async
from hgpo.policies.base import Request
from scripted_policy import ScriptedPolicy


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


def test_a_policy_that_answers_apart_already_stays_as_it_is():
    apart = AsyncBatcher(Counting())
    assert as_async(apart) is apart
    assert isinstance(as_async(Counting()), AsyncBatcher)
    assert np.isscalar(apart.numbers_per_response)
