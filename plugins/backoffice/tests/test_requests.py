"""What the policies demand for each request, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hgpo_backoffice.requests import Request, call, next_call

ITEM = {"product_id": "p10", "name": "red lamp", "quantity": 2, "total": 42, "returned": False}
LAMPS = [
    {"id": "p10", "kind": "lamp", "colour": "red", "stock": 0},
    {"id": "p11", "kind": "lamp", "colour": "blue", "stock": 2},
    {"id": "p12", "kind": "lamp", "colour": "green", "stock": 1},
]


def order(status: str, days: int | None = None, refunded: int = 0, **item: Any) -> dict[str, Any]:
    items = [{**ITEM, **item}]
    return {
        "id": "w100",
        "status": status,
        "days": days,
        "address": "1 oak street",
        "items": items,
        "refunded": refunded,
    }


def request(kind: str, **more: str) -> Request:
    return Request(kind, "w100", "red lamp", **more)


def decline(reason: str) -> Any:
    return call("decline_request", order_id="w100", reason=reason)


RETURN, DAMAGED, MOVE = request("return"), request("damaged"), request("address", address="9 park road")
BLUE, GREEN = request("exchange", wanted="blue lamp"), request("exchange", wanted="green lamp")


@pytest.mark.parametrize(
    ("asked", "about", "needed"),
    [
        (request("cancel"), order("pending"), call("cancel_order", order_id="w100")),
        (request("cancel"), order("shipped"), decline("already_shipped")),
        (request("cancel"), order("delivered", 1), decline("already_shipped")),
        (request("cancel"), order("cancelled"), None),
        (MOVE, order("pending"), call("change_address", order_id="w100", address="9 park road")),
        (MOVE, order("shipped"), decline("already_shipped")),
        (MOVE, {**order("pending"), "address": "9 park road"}, None),
        (RETURN, order("delivered", 30), call("return_item", order_id="w100", product_id="p10")),
        (RETURN, order("delivered", 30, returned=True), call("refund", order_id="w100", amount=42)),
        (RETURN, order("delivered", 30, 42, returned=True), None),
        (RETURN, order("delivered", 31), decline("too_late")),
        (RETURN, order("pending"), decline("not_delivered")),
        (RETURN, order("shipped"), decline("not_delivered")),
        (DAMAGED, order("delivered", 1), call("refund", order_id="w100", amount=21)),
        (DAMAGED, order("delivered", 1, 21), None),
        (DAMAGED, order("delivered", 60), decline("too_late")),
        (BLUE, order("delivered", 2), call("exchange_item", order_id="w100", product_id="p10", new_product_id="p11")),
        (BLUE, order("delivered", 2, name="blue lamp", product_id="p11"), None),
        (BLUE, order("delivered", 40), decline("too_late")),
        (BLUE, order("shipped"), decline("not_delivered")),
        (GREEN, order("delivered", 2), decline("out_of_stock")),
    ],
)
def test_the_next_call_follows_the_policies(asked: Request, about: dict[str, Any], needed: Any) -> None:
    assert next_call(asked, about, LAMPS, {}) == needed
    assert next_call(asked, about, LAMPS, {"w100": "too_late"}) is None


def test_products_are_looked_up_before_an_exchange() -> None:
    assert next_call(BLUE, order("delivered", 2), [], {}) == call("find_products", kind="lamp")
