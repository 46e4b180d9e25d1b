"""Credit for sampled messages: on carriers of the shape of prime-rl's traces, and on its own classes."""

import asyncio
from types import SimpleNamespace

import pytest

from hgpo.integrations.attempts import StepAdvantages, Turn
from hgpo.integrations.prime_rl import assign_steps, step_algorithm, turns_of


def message(role, content, **further):
    return SimpleNamespace(role=role, content=content, **further)


def trace(*rooms, reward):
    """system, then for each room: user, and the assistant with two tokens."""
    nodes = [SimpleNamespace(message=message("system", "s"), mask=[False], parent=None, token_ids=[0])]
    for room in rooms:
        nodes.append(
            SimpleNamespace(message=message("user", room), mask=[False] * 2, parent=len(nodes) - 1, token_ids=[1, 1])
        )
        said = message("assistant", "go")
        nodes.append(SimpleNamespace(message=said, mask=[True, False, True], parent=len(nodes) - 1, token_ids=[2] * 3))
    return SimpleNamespace(nodes=nodes, reward=reward, id=rooms)


def test_turns_are_the_sampled_messages():
    assert turns_of(trace("hall", "kitchen", reward=1.0)) == [Turn("hall", "go"), Turn("kitchen", "go", 1.0)]


def test_a_branch_hears_what_leads_to_it():
    branched = trace("hall", reward=0.0)
    for room in ("kitchen", "cellar"):
        branched.nodes.append(SimpleNamespace(message=message("tool", room), mask=[False], parent=2))
        call = message("assistant", None, tool_calls=["open"])
        branched.nodes.append(SimpleNamespace(message=call, mask=[True], parent=len(branched.nodes) - 1))
    assert [turn.observation for turn in turns_of(branched)] == ["hall", "kitchen", "cellar"]
    assert turns_of(branched)[1].action == "\n['open']"


def test_every_sampled_token_has_the_credit_of_its_message():
    traces = [trace("hall", "kitchen", reward=1.0), trace("hall", "kitchen", reward=0.0), trace("hall", reward=0.0)]
    assigned = {}
    estimate = StepAdvantages("gigpo")
    assign_steps(traces, estimate, lambda trace, values: assigned.update({(*trace.id, trace.reward): values}))
    first, second, third = estimate([turns_of(one) for one in traces], [0, 0, 0])
    assert assigned[("hall", "kitchen", 1.0)] == [first[0], first[0], first[1], first[1]]
    assert assigned[("hall", "kitchen", 0.0)] == [second[0], second[0], second[1], second[1]]
    assert assigned[("hall", 0.0)] == [third[0], third[0]]


def test_prime_rls_own_classes_take_it():
    reason = "prime-rl is not installed: see its repository (Python 3.12)"
    pytest.importorskip("prime_rl.orchestrator.algo.grpo", reason=reason)
    from prime_rl.configs.algorithm import GRPOAlgoConfig

    algorithm = step_algorithm(StepAdvantages())(GRPOAlgoConfig(), None)
    traces = [trace("hall", "kitchen", reward=1.0), trace("hall", "kitchen", reward=0.0)]
    for one in traces:
        one.has_error, one.agent = False, SimpleNamespace(trainable=True)
    asyncio.run(algorithm.score_group([SimpleNamespace(traces=traces)]))
    credit = [node.advantages for node in traces[0].nodes if any(node.mask)]
    assert [len(values) for values in credit] == [2, 2]
    assert credit[0][0] > 0 > traces[1].nodes[2].advantages[0]
