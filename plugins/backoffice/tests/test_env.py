"""The environment: actions as JSON, hostile ones too, and the exact reward."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.wrappers import LimitedEnv
from hgpo.tool_calls import ToolCall
from hgpo_backoffice.cases import SEEN, UNSEEN, Case, make_case
from hgpo_backoffice.env import FIRST_TEXT, BackofficeEnv
from hgpo_backoffice.requests import call


def honest_case(kinds: tuple[str, ...]) -> Case:
    """The first case of these kinds whose customer gives the right postcode, and without a declined request."""
    for number in range(1000):
        case = make_case(kinds, Random(number))
        names = [one.name for one in case.solution]
        if case.solution[-1].arguments["outcome"] == "handled" and "decline_request" not in names:
            return case
    raise AssertionError(f"no case of {kinds}")


def identified(environment: BackofficeEnv, case: Case) -> BackofficeEnv:
    """The environment after the check of the identity."""
    environment.reset()
    _, info = environment.reset()
    email, postcode = case.desk.answers["email"], case.desk.answers["postcode"]
    for detail in ("email", "postcode"):
        environment.step(call("ask_customer", detail=detail).action)
    found, *_ = environment.step(call("find_customer", email=email).action)
    customer = json.loads(found)["customer_id"]
    environment.step(call("verify_identity", customer_id=customer, postcode=postcode).action)
    assert not info["won"]
    return environment


def reward_of(environment: BackofficeEnv, calls: list[ToolCall]) -> float:
    """The reward of the last call; those before have none."""
    for one in calls[:-1]:
        _, reward, ended, _, _ = environment.step(one.action)
        assert (reward, ended) == (0.0, False)
    _, reward, ended, truncated, info = environment.step(calls[-1].action)
    assert (ended, truncated, info["won"]) == (True, False, bool(reward))
    return reward


@pytest.mark.parametrize("kinds", [*SEEN, *UNSEEN], ids="+".join)
def test_only_the_solution_is_rewarded(kinds: tuple[str, ...]) -> None:
    case = honest_case(kinds)
    solution = list(case.solution)
    assert reward_of(identified(BackofficeEnv(case), case), solution) == 1.0
    for left_out in range(len(solution) - 1):
        rest = [*solution[:left_out], *solution[left_out + 1 :]]
        assert reward_of(identified(BackofficeEnv(case), case), rest) == 0.0
    order_id = next(iter(case.desk.database.orders))
    more = call("decline_request", order_id=order_id, reason="too_late")
    assert reward_of(identified(BackofficeEnv(case), case), [more, *solution]) == 0.0


def test_a_violation_costs_the_reward_though_the_database_is_right() -> None:
    case = honest_case(("cancel",))
    environment = identified(BackofficeEnv(case), case)
    foreign = next(
        one for one in case.desk.database.orders.values() if one.customer_id not in environment._desk.verified
    )
    assert reward_of(environment, [call("get_order", order_id=foreign.id), *case.solution]) == 0.0
    unchecked = BackofficeEnv(case)
    unchecked.reset()
    assert reward_of(unchecked, list(case.solution)) == 0.0


def test_reads_and_failed_calls_cost_nothing() -> None:
    case = honest_case(("exchange",))
    environment = identified(BackofficeEnv(case), case)
    harmless = [call("find_products", kind="lamp"), call("get_order", order_id="w999"), ToolCall("fly", {})]
    assert reward_of(environment, [*harmless, *case.solution]) == 1.0


def test_the_customer_who_is_not_who_they_say_gets_nothing() -> None:
    case = next(
        case
        for number in range(1000)
        if (case := make_case(("return",), Random(number))).solution[-1].arguments["outcome"] == "not_verified"
    )
    environment = BackofficeEnv(case)
    _, info = environment.reset()
    assert reward_of(environment, [call("close_case", outcome="not_verified")]) == 0.0  # without a check
    assert reward_of(identified(environment, case), [call("close_case", outcome="handled")]) == 0.0
    assert reward_of(identified(environment, case), [call("close_case", outcome="not_verified")]) == 1.0
    more = call("find_products", kind="lamp")
    assert reward_of(identified(environment, case), [more, call("close_case", outcome="not_verified")]) == 0.0
    assert "close the case as not_verified" in info["task"]


@pytest.mark.parametrize("outcome", ["handled", "not_verified"])
def test_what_the_customer_did_not_say_may_not_be_used(outcome: str) -> None:
    """Else any invented postcode would win the cases of impostors."""
    cases = (make_case(("cancel",), Random(number)) for number in range(1000))
    case = next(one for one in cases if not one.desk.told and one.solution[-1].arguments["outcome"] == outcome)
    email, postcode = case.desk.answers["email"], case.desk.answers["postcode"]
    customer = next(one.id for one in case.desk.database.customers.values() if one.email == email)
    ask_email, ask_postcode = (call("ask_customer", detail=detail) for detail in ("email", "postcode"))
    find = call("find_customer", email=email)
    verify = call("verify_identity", customer_id=customer, postcode=postcode)
    invented = call("verify_identity", customer_id=customer, postcode="0000")
    assert rewarded(case, [ask_email, find, ask_postcode, verify, *case.solution])
    assert not rewarded(case, [find, ask_email, ask_postcode, verify, *case.solution])
    assert not rewarded(case, [ask_email, find, verify, ask_postcode, *case.solution])
    assert not rewarded(case, [ask_email, ask_postcode, verify, *case.solution])
    assert not rewarded(case, [ask_email, ask_postcode, find, invented, *case.solution])


def rewarded(case: Case, calls: list[ToolCall]) -> bool:
    environment = BackofficeEnv(case)
    environment.reset()
    return bool(reward_of(environment, calls))


HOSTILE = [
    "",
    "{",
    "[]",
    "null",
    '"get_order"',
    "[" * 1500,
    '{"a":' * 300,
    "x" * 100_000,
    '{"tool": "get_order"}',
    '{"tool": "get_order", "arguments": {"order_id": "w100"}, "more": 1}',
    '{"tool": "get_order", "arguments": {"order_id": "w100"}} {"tool": "close_case", "arguments": {}}',
    '{"tool": "get_order", "tool": "refund", "arguments": {}}',
    '{"tool": ["get_order"], "arguments": {}}',
    '{"tool": "get_order", "arguments": "w100"}',
    '{"tool": "refund", "arguments": {"order_id": "w100", "amount": NaN}}',
    '{"tool": "refund", "arguments": {"order_id": "w100", "amount": 1e999}}',
    '{"tool": "refund", "arguments": {"order_id": "w100", "amount": %s}}' % ("9" * 1900),
    '{"tool": "find_customer", "arguments": {"email": "\\ud800"}}',
    '{"tool": "find_customer", "arguments": {"email": "\\u0000"}}',
    '{"tool": "__import__", "arguments": {}}',
    '{"tool": "get_order", "arguments": {"__class__": "w100"}}',
    "__import__('os').system('true')",
    "\ud800",
]


@pytest.mark.parametrize("action", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_action_is_answered_with_an_error_and_changes_nothing(action: str) -> None:
    environment = BackofficeEnv(make_case(("return", "damaged"), Random(0)))
    environment.reset()
    before = environment.state_key()
    text, reward, ended, truncated, info = LimitedEnv(environment, 10).step(action)
    assert list(json.loads(text)) == ["error"]
    assert len(text) < 1000
    assert (reward, ended, truncated, info["won"]) == (0.0, False, False, False)
    assert environment.state_key() == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.one_of(st.text(max_size=300), st.builds(lambda a, b: json.dumps({"tool": a, "arguments": b}), JSON, JSON)))
def test_any_text_is_answered(action: str) -> None:
    environment = BackofficeEnv(make_case(("cancel",), Random(1)))
    environment.reset()
    text, reward, ended, _, _ = environment.step(action)
    assert isinstance(json.loads(text), dict)
    assert (reward, ended) == (0.0, False)


def test_letter_case_and_spaces_make_no_difference() -> None:
    environment = BackofficeEnv(make_case(("cancel",), Random(1)))
    texts = set()
    for action in (
        '{"tool": "Find_Products", "arguments": {"kind": " LAMP "}}',
        call("find_products", kind="lamp").action,
    ):
        environment.reset()
        texts.add(environment.step(action)[0])
    assert len(texts) == 1


def test_the_state_key_is_that_of_database_checks_and_offered_commands() -> None:
    case = honest_case(("damaged",))
    case = replace(case, desk=replace(case.desk, told=frozenset()))
    environment = BackofficeEnv(case)
    first, info = environment.reset()
    assert first == FIRST_TEXT
    start = environment.state_key()
    keys = {environment.state_key()}
    for _ in range(2):  # the second time, nothing new is shown
        *_, seen = environment.step(call("find_products", kind="lamp").action)
        assert seen["notes"] != info["notes"]
        keys.add(environment.state_key())
    assert len(keys) == 2
    environment.step(call("ask_customer", detail="email").action)
    assert environment.state_key() != start
    identified(environment, case)
    checked = environment.state_key()
    environment.step(case.solution[0].action)
    assert len({start, checked, environment.state_key()}) == 3
    environment.reset()
    assert environment.state_key() == start
    assert (
        BackofficeEnv(case).identity() == environment.identity() != BackofficeEnv(honest_case(("cancel",))).identity()
    )


def test_an_episode_ends_once() -> None:
    environment = BackofficeEnv(make_case(("cancel",), Random(1)))
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("{}")
    environment.reset()
    environment.step(call("close_case", outcome="handled").action)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("{}")
