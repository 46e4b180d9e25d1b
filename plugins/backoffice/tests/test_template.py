"""The compact template: what was shown in a line, and calls in a short form."""

from __future__ import annotations

import pytest

from hgpo.agents.prompts import AgentContext
from hgpo.tool_calls import parse_action
from hgpo_backoffice.requests import call
from hgpo_backoffice.suite import backoffice_suite
from hgpo_backoffice.template import BACKOFFICE_COMPACT

TASK = "Policies: …\n\nThe customer writes: Hello. Please cancel order w100."
ORDER = (
    '{"id": "w100", "status": "%s", "days": null, "address": "1 oak street", "items": [{"product_id": "p10", "name": '
    '"red lamp", "quantity": 2, "total": 40, "returned": false}], "paid": 40, "refunded": %d}'
)


def test_a_prompt_has_the_newest_state_of_every_record() -> None:
    history = (
        ("A new case is open.", call("ask_customer", detail="email").action),
        ('{"customer": "My email is ann1@example.com"}', call("find_customer", email="ann1@example.com").action),
        ('{"customer_id": "c10"}', call("verify_identity", customer_id="c10", postcode="1000").action),
        ('{"customer_id": "c10", "verified": true, "orders": ["w100"]}', call("get_order", order_id="w100").action),
        (ORDER % ("pending", 0), call("cancel_order", order_id="w100").action),
    )
    context = AgentContext(TASK, ORDER % ("cancelled", 40), len(history), history)
    assert BACKOFFICE_COMPACT.render(context) == (
        "case : Hello. Please cancel order w100. My email is ann1@example.com ; verified w100 "
        "; w100 cancelled to 1 oak street , red lamp w100 p10 for 40 refunded last : cancel_order w100"
    )


def test_a_declined_request_and_an_error_are_remembered() -> None:
    declined = call("decline_request", order_id="w100", reason="too_late").action
    history = (("", declined), ('{"customer": "I see"}', "go north"))
    context = AgentContext(TASK, '{"error": "no tool call"}', 2, history)
    assert BACKOFFICE_COMPACT.render(context).endswith(
        "w100. decline_request w100 too_late last : go north no tool call"
    )


def test_every_candidate_call_has_a_short_form_that_is_read_back() -> None:
    suite = backoffice_suite(train_tasks=22, valid_seen_tasks=0, valid_unseen_tasks=0)
    for task in suite.tasks("train"):
        environment, expert = task.make(), suite.expert()
        observation, info = environment.reset()
        expert.reset(observation, info)
        ended = False
        while not ended:
            for action in info["admissible_commands"]:
                parsed = BACKOFFICE_COMPACT.parse(BACKOFFICE_COMPACT.respond(action))
                assert (parsed.action, parsed.valid) == (action, True)
            observation, _, ended, _, info = environment.step(expert.act(observation, info))


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        ("", "empty"),
        ("refund w100", "missing argument"),
        ("close_case", "missing argument"),
    ],
)
def test_a_response_that_is_no_call_is_invalid(response: str, fault: str) -> None:
    parsed = BACKOFFICE_COMPACT.parse(response)
    assert (parsed.valid, parsed.fault) == (False, fault)


def test_other_text_is_left_to_the_environment() -> None:
    parsed = BACKOFFICE_COMPACT.parse("fly away")
    assert (parsed.action, parsed.valid) == ("fly away", True)


def test_an_amount_that_is_no_number_is_left_to_the_tool() -> None:
    assert parse_action(BACKOFFICE_COMPACT.parse("refund w100 much").action).arguments["amount"] == "much"
    assert parse_action(BACKOFFICE_COMPACT.parse("refund w100 7").action).arguments["amount"] == 7
