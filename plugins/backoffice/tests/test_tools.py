"""Each tool on a small shop worked out by hand, and what no sequence of calls can break."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo_backoffice.cases import SEEN, make_case
from hgpo_backoffice.database import Customer, Database, Item, Order, Product
from hgpo_backoffice.desk import Desk
from hgpo_backoffice.tools import SCHEMAS, TOOLS, call_tool

SHOP = Database(
    {"c10": Customer("c10", "ann1@example.com", "1000"), "c11": Customer("c11", "ben2@example.com", "2000")},
    {
        "p10": Product("p10", "lamp", "red", 20, 1),
        "p11": Product("p11", "lamp", "blue", 20, 2),
        "p12": Product("p12", "chair", "red", 40, 0),
    },
    {
        "w100": Order("w100", "c10", "pending", None, "1 oak street", (Item("p10", "red lamp", 2, 40),), 40),
        "w101": Order("w101", "c10", "delivered", 30, "1 oak street", (Item("p10", "red lamp", 2, 40),), 40),
        "w102": Order("w102", "c10", "shipped", None, "1 oak street", (Item("p12", "red chair", 1, 40),), 40),
        "w103": Order("w103", "c11", "delivered", 31, "2 mill lane", (Item("p11", "blue lamp", 1, 20),), 20),
    },
)
SAID = {"email": "ann1@example.com", "postcode": "1000"}
START = Desk(SHOP, SAID, frozenset(SAID))
CHECKED = replace(START, found="c10", verified=frozenset({"c10"}))
IMPOSTOR = replace(START, answers=SAID | {"postcode": "2000"}, found="c10")


def broken(database: Database) -> list[str]:
    """The invariants that do not hold."""
    found = [f"stock of {product.id} is {product.stock}" for product in database.products.values() if product.stock < 0]
    for order in database.orders.values():
        if not 0 <= order.refunded <= order.paid:
            found.append(f"{order.refunded} of {order.paid} refunded for {order.id}")
        if order.paid != sum(item.total for item in order.items):
            found.append(f"the lines of {order.id} do not add up to {order.paid}")
        if len({item.product_id for item in order.items}) < len(order.items):
            found.append(f"{order.id} has a product twice")
        if (order.days is not None) != (order.status == "delivered"):
            found.append(f"{order.id} is {order.status} with days = {order.days}")
    return found


def goods(database: Database) -> dict[str, int]:
    """Kind -> pieces in stock and at customers."""
    counts = dict.fromkeys((product.kind for product in database.products.values()), 0)
    for product in database.products.values():
        counts[product.kind] += product.stock
    for order in database.orders.values():
        for item in order.items:
            if order.status != "cancelled" and not item.returned:
                counts[database.products[item.product_id].kind] += item.quantity
    return counts


def test_the_identity_is_checked_before_orders_are_opened() -> None:
    desk, result = call_tool(START, "find_customer", {"email": "ANN1@example.com"})
    assert result == {"customer_id": "c10"}
    desk, result = call_tool(desk, "verify_identity", {"customer_id": "c10", "postcode": "1000"})
    assert result == {"customer_id": "c10", "verified": True, "orders": ["w100", "w101", "w102"]}
    desk, result = call_tool(desk, "get_order", {"order_id": "w100"})
    assert (result["status"], result["items"][0]["total"]) == ("pending", 40)
    assert desk.violations == frozenset()
    assert call_tool(desk, "get_order", {"order_id": "w103"})[0].violations == {"identity before personal data"}


def test_a_wrong_postcode_is_recorded_and_a_call_after_it_violates_a_policy() -> None:
    desk, result = call_tool(IMPOSTOR, "verify_identity", {"customer_id": "c10", "postcode": "2000"})
    assert result == {"customer_id": "c10", "verified": False}
    assert (desk.failed, desk.violations) == ({"c10"}, frozenset())
    assert call_tool(desk, "close_case", {"outcome": "not_verified"})[0].violations == frozenset()
    again, _ = call_tool(desk, "verify_identity", {"customer_id": "c10", "postcode": "2000"})
    assert again.violations == {"nothing after a failed check"}
    assert call_tool(desk, "find_products", {"kind": "lamp"})[0].violations == {"nothing after a failed check"}
    assert call_tool(desk, "find_products", {"kind": "sofa"})[0].violations == frozenset()  # an error


def test_nothing_is_handled_after_a_failed_check() -> None:
    desk, _ = call_tool(IMPOSTOR, "verify_identity", {"customer_id": "c10", "postcode": "2000"})
    assert call_tool(desk, "close_case", {"outcome": "handled"})[0].violations == {"handled after a failed check"}


@pytest.mark.parametrize(
    ("desk", "arguments", "violated"),
    [
        (START, {"customer_id": "c10", "postcode": "1000"}, "find by email"),
        (CHECKED, {"customer_id": "c11", "postcode": "1000"}, "find by email"),
        (CHECKED, {"customer_id": "c10", "postcode": "3000"}, "postcode of the customer"),
        (replace(CHECKED, told=frozenset()), {"customer_id": "c10", "postcode": "1000"}, "postcode of the customer"),
    ],
)
def test_only_the_customer_who_writes_is_checked_and_with_what_was_said(
    desk: Desk, arguments: dict[str, str], violated: str
) -> None:
    assert call_tool(desk, "verify_identity", arguments)[0].violations == {violated}
    assert call_tool(START, "find_customer", {"email": "ben2@example.com"})[0].violations == {"email of the customer"}


def test_a_cancelled_order_is_paid_back_and_its_goods_are_in_stock_again() -> None:
    desk, result = call_tool(CHECKED, "cancel_order", {"order_id": "w100"})
    assert (result["status"], result["refunded"]) == ("cancelled", 40)
    assert desk.database.products["p10"].stock == 3
    assert call_tool(desk, "cancel_order", {"order_id": "w100"})[1] == {"error": "order w100 is cancelled"}


def test_a_returned_item_is_in_stock_and_its_total_is_refunded_once() -> None:
    desk, _ = call_tool(CHECKED, "return_item", {"order_id": "w101", "product_id": "p10"})
    desk, result = call_tool(desk, "refund", {"order_id": "w101", "amount": 40})
    assert (result["refunded"], desk.database.products["p10"].stock, desk.violations) == (40, 3, frozenset())
    assert "was returned" in call_tool(desk, "return_item", {"order_id": "w101", "product_id": "p10"})[1]["error"]
    after, result = call_tool(desk, "refund", {"order_id": "w101", "amount": 1})
    assert result == {"error": "40 was paid for order w101, and 0 of it is not refunded"}
    assert after is desk


def test_an_exchange_takes_from_one_stock_and_gives_to_the_other() -> None:
    desk, result = call_tool(
        CHECKED, "exchange_item", {"order_id": "w101", "product_id": "p10", "new_product_id": "p11"}
    )
    assert list(result["items"]) == [
        {"product_id": "p11", "name": "blue lamp", "quantity": 2, "total": 40, "returned": False}
    ]
    assert [desk.database.products[one].stock for one in ("p10", "p11")] == [3, 0]


@pytest.mark.parametrize(
    ("tool", "arguments", "violated"),
    [
        ("cancel_order", {"order_id": "w102"}, {"cancel before shipping"}),
        ("change_address", {"order_id": "w102", "address": "9 park road"}, {"address before shipping"}),
        ("change_address", {"order_id": "w100", "address": "9 park road"}, set()),
        ("return_item", {"order_id": "w101", "product_id": "p10"}, set()),
        ("return_item", {"order_id": "w103", "product_id": "p11"}, {"30 days", "identity before personal data"}),
        ("refund", {"order_id": "w103", "amount": 10}, {"30 days", "identity before personal data"}),
        ("refund", {"order_id": "w100", "amount": 40}, {"refund after delivery"}),
        ("close_case", {"outcome": "not_verified"}, {"not_verified without a failed check"}),
        ("close_case", {"outcome": "handled"}, set()),
    ],
)
def test_what_violates_a_policy_is_carried_out_and_recorded(
    tool: str, arguments: dict[str, Any], violated: set[str]
) -> None:
    desk, result = call_tool(CHECKED, tool, arguments)
    assert "error" not in result
    assert desk.violations == violated


def test_what_is_in_the_wrong_order_violates_a_policy_though_the_database_ends_alike() -> None:
    item, total = {"order_id": "w101", "product_id": "p10"}, {"order_id": "w101", "amount": 40}
    right = call_tool(call_tool(CHECKED, "return_item", item)[0], "refund", total)[0]
    wrong = call_tool(call_tool(CHECKED, "refund", total)[0], "return_item", item)[0]
    assert (right.violations, wrong.violations) == (frozenset(), {"return before refund"})
    assert right.database.digest() == wrong.database.digest()


def test_the_customer_gets_one_reason() -> None:
    once, _ = call_tool(CHECKED, "decline_request", {"order_id": "w102", "reason": "not_delivered"})
    again, _ = call_tool(once, "decline_request", {"order_id": "w102", "reason": "not_delivered"})
    other, _ = call_tool(once, "decline_request", {"order_id": "w102", "reason": "already_shipped"})
    assert (again.violations, other.violations) == (frozenset(), {"one reason"})


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("fly", {}, "unknown tool; the tools are find_customer, "),
        ("find_customer", {"email": "who@example.com"}, "no customer has this email"),
        ("find_customer", {}, "find_customer: email: Field required"),
        ("find_customer", {"email": "a", "name": "b"}, "find_customer: name: Extra inputs are not permitted"),
        ("find_customer", {"email": "a" * 81}, "find_customer: email: String should have at most 80 characters"),
        ("verify_identity", {"customer_id": "c99", "postcode": "1000"}, "there is no customer c99"),
        ("verify_identity", {"customer_id": "c10", "postcode": 1000}, "postcode: Input should be a valid string"),
        ("get_order", {"order_id": "w999"}, "there is no order w999"),
        ("get_order", {"order_id": "w1000"}, "order_id: String should match pattern"),
        ("get_order", {"order_id": ["w100"]}, "order_id: Input should be a valid string"),
        ("find_products", {"kind": "rocket"}, "there is no product of the kind 'rocket'"),
        ("refund", {"order_id": "w100", "amount": 41}, "40 was paid for order w100, and 40 of it is not refunded"),
        ("refund", {"order_id": "w100", "amount": -1}, "amount: Input should be greater than or equal to 1"),
        ("refund", {"order_id": "w100", "amount": 1.5}, "amount: Input should be a valid integer"),
        ("refund", {"order_id": "w100", "amount": True}, "amount: Input should be a valid integer"),
        ("return_item", {"order_id": "w100", "product_id": "p10"}, "order w100 is pending, not delivered"),
        ("return_item", {"order_id": "w101", "product_id": "p12"}, "order w101 has no item p12"),
        (
            "exchange_item",
            {"order_id": "w101", "product_id": "p10", "new_product_id": "p12"},
            "p12 is no product of the same kind",
        ),
        ("change_address", {"order_id": "w101", "address": "9 park road"}, "order w101 is delivered"),
        ("decline_request", {"order_id": "w100", "reason": "no"}, "reason: Input should be 'already_shipped'"),
        ("ask_customer", {"detail": "password"}, "detail: Input should be 'email' or 'postcode'"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(tool: str, arguments: dict[str, Any], reason: str) -> None:
    desk, result = call_tool(CHECKED, tool, arguments)
    assert reason in result["error"]
    assert desk is CHECKED


def test_an_exchange_needs_stock() -> None:
    short = replace(CHECKED, database=SHOP.with_stock("p11", -1))
    arguments = {"order_id": "w101", "product_id": "p10", "new_product_id": "p11"}
    assert call_tool(short, "exchange_item", arguments)[1] == {"error": "the stock of p11 is 1, and 2 are needed"}


def test_the_schemas_name_every_argument() -> None:
    by_name = {schema["name"]: schema for schema in SCHEMAS}
    assert list(by_name) == list(TOOLS)
    assert by_name["refund"] == {
        "name": "refund",
        "description": "Refund an amount to the customer's payment method.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "order_id": {"type": "string", "pattern": "^w[0-9]{3}$", "description": "such as w100"},
                "amount": {"type": "integer", "minimum": 1, "maximum": 10_000, "description": "whole euros"},
            },
            "required": ["order_id", "amount"],
        },
    }


IDS = st.sampled_from([*SHOP.orders, *SHOP.products, *SHOP.customers, "w999", "handled", "1000", "lamp", "email"])
VALUES = st.one_of(IDS, st.integers(-5, 60), st.text(max_size=5), st.none(), st.booleans(), st.lists(IDS, max_size=2))
NAMES = sorted({name for tool in TOOLS.values() for name in tool.model_fields})


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A call that is mostly well typed, so that it often does something."""
    name = draw(st.sampled_from(list(TOOLS)))
    kinds = {"order_id": list(SHOP.orders), "customer_id": list(SHOP.customers), "postcode": ["1000", "2000"]}
    kinds |= {"product_id": list(SHOP.products), "new_product_id": list(SHOP.products)}
    arguments = {
        key: draw(st.sampled_from(kinds[key]) if key in kinds and draw(st.integers(0, 9)) else VALUES)
        for key in TOOLS[name].model_fields
    }
    if not draw(st.integers(0, 9)):
        arguments[draw(st.sampled_from(NAMES))] = draw(VALUES)
    return name, arguments


@given(st.lists(calls(), max_size=40))
def test_no_sequence_of_calls_breaks_the_database(sequence: list[tuple[str, dict[str, Any]]]) -> None:
    desk = START
    for name, arguments in sequence:
        before = desk
        desk, result = call_tool(desk, name, arguments)
        assert isinstance(result, dict)
        assert broken(desk.database) == []
        assert goods(desk.database) == goods(SHOP)
        assert before.violations <= desk.violations
        if "error" in result:
            assert desk is before


@pytest.mark.parametrize("kinds", SEEN, ids="+".join)
def test_generated_databases_hold_the_invariants(kinds: tuple[str, ...]) -> None:
    for number in range(20):
        assert broken(make_case(kinds, Random(number)).desk.database) == []
