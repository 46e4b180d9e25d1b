"""What customers ask for, and the call that a request needs next under the policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.tool_calls import ToolCall
from hgpo_backoffice.desk import RETURN_DAYS

KINDS = ("cancel", "address", "return", "exchange", "damaged")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a kind of `KINDS`; names of products are such as "red lamp".

    Attributes:
        order_id: the order; "" if the customer names only the product.
        wanted: the product that an exchange asks for.
        address: the new address, if one is asked for.
    """

    kind: str
    order_id: str
    product: str
    wanted: str = ""
    address: str = ""

    def text(self, form: int) -> str:
        """The request as the customer writes it, in one of two forms."""
        order = f"order {self.order_id}" if self.order_id else f"my order of the {self.product}"
        item = f"the {self.product} of order {self.order_id}" if self.order_id else f"the {self.product}"
        first, second = {
            "cancel": (f"please cancel {order}", f"I do not need {order} any more, cancel it"),
            "address": (f"please send {order} to {self.address}", f"{order} has to go to {self.address}"),
            "return": (f"I want to return {item}", f"I send back {item} and want my money"),
            "exchange": (f"I want a {self.wanted} for {item}", f"please exchange {item} for a {self.wanted}"),
            "damaged": (
                f"{item} arrived damaged, I keep it for half the price",
                f"{item} is broken, I keep it for half the price",
            ),
        }[self.kind]
        return second if form else first

    def is_about(self, order: Mapping[str, Any]) -> bool:
        """Whether it is about an order, as `get_order` shows it."""
        named = any(item["name"] == self.product for item in order["items"])
        return order["id"] == self.order_id if self.order_id else named


def call(tool: str, **arguments: Any) -> ToolCall:
    """A call from its arguments by name."""
    return ToolCall(tool, arguments)


def next_call(
    request: Request, order: Mapping[str, Any], products: Iterable[Mapping[str, Any]], declined: Mapping[str, str]
) -> ToolCall | None:
    """The call that a request needs next; None if it is done or declined. The order is as `get_order` shows it."""
    order_id, status = order["id"], order["status"]
    if order_id in declined:
        return None
    if reason := _obstacle(request.kind, status, order["days"]):
        return call("decline_request", order_id=order_id, reason=reason)
    if request.kind == "cancel":
        return None if status == "cancelled" else call("cancel_order", order_id=order_id)
    if request.kind == "address":
        done = order["address"] == request.address
        return None if done else call("change_address", order_id=order_id, address=request.address)
    item = next((item for item in order["items"] if item["name"] == request.product), None)
    if item is None:  # exchanged
        return None
    if request.kind == "exchange":
        return _exchange(request, order_id, item, products)
    if request.kind == "return" and not item["returned"]:
        return call("return_item", order_id=order_id, product_id=item["product_id"])
    amount = item["total"] if request.kind == "return" else item["total"] // 2
    return None if order["refunded"] else call("refund", order_id=order_id, amount=amount)


def _obstacle(kind: str, status: str, days: int | None) -> str:
    """The reason for which the policies forbid what is asked; "" if there is none but stock."""
    if kind in ("cancel", "address"):
        return "already_shipped" if status in ("shipped", "delivered") else ""
    if status != "delivered" or days is None:
        return "not_delivered"
    return "too_late" if days > RETURN_DAYS else ""


def _exchange(
    request: Request, order_id: str, item: Mapping[str, Any], products: Iterable[Mapping[str, Any]]
) -> ToolCall:
    kind = request.wanted.partition(" ")[2]
    wanted = next((one for one in products if f"{one['colour']} {one['kind']}" == request.wanted), None)
    if wanted is None:
        return call("find_products", kind=kind)
    if wanted["stock"] < item["quantity"]:
        return call("decline_request", order_id=order_id, reason="out_of_stock")
    return call("exchange_item", order_id=order_id, product_id=item["product_id"], new_product_id=wanted["id"])
