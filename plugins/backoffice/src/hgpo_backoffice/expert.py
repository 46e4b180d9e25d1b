"""An expert that uses only what was shown, and the calls that someone with this knowledge could make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from hgpo.tool_calls import ToolCall
from hgpo_backoffice.requests import Request, call, next_call
from hgpo_backoffice.tools import Reason


class BackofficeExpert:
    """Checks the identity, then handles one request after the other; earlier calls may be another policy's."""

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Read the requests."""
        self._requests = [Request(**request) for request in info["requests"]]

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next call for what `info["notes"]` has."""
        notes = info["notes"]
        needed = self._identity(notes) or self._handling(notes) or call("close_case", outcome="handled")
        return needed.action

    def _identity(self, notes: Mapping[str, Any]) -> ToolCall | None:
        if notes["failed"]:
            return call("close_case", outcome="not_verified")
        if notes["verified"]:
            return None
        missing = "postcode" if notes["customer"] else "email"
        if missing not in notes["told"]:
            return call("ask_customer", detail=missing)
        if missing == "email":
            return call("find_customer", email=notes["told"]["email"])
        return call("verify_identity", customer_id=notes["customer"], postcode=notes["told"]["postcode"])

    def _handling(self, notes: Mapping[str, Any]) -> ToolCall | None:
        for request in self._requests:
            orders = [order for order in notes["orders"].values() if request.is_about(order)]
            unread = [one for one in notes["mentioned"] if one not in notes["orders"]]
            order_id = request.order_id or next(iter(unread), "")  # "": an exchanged item has another name
            if not orders and order_id:
                return call("get_order", order_id=order_id)
            if orders and (needed := next_call(request, orders[0], notes["products"], notes["declined"])):
                return needed
        return None


def candidate_calls(requests: list[dict[str, Any]], notes: Mapping[str, Any]) -> list[str]:
    """Calls whose arguments were all shown, right and wrong ones: each tool with each id, name and amount."""
    told = notes["told"]
    calls = [call("ask_customer", detail=detail) for detail in ("email", "postcode")]
    calls += [call("find_customer", email=told["email"])] if "email" in told else []
    if notes["customer"] and "postcode" in told:
        calls.append(call("verify_identity", customer_id=notes["customer"], postcode=told["postcode"]))
    goods = sorted({request["wanted"].partition(" ")[2] for request in requests if request["wanted"]})
    calls += [call("find_products", kind=kind) for kind in goods]
    for order_id in notes["mentioned"]:
        order = notes["orders"].get(order_id)
        calls += [call("get_order", order_id=order_id)] if order is None else _changes(order, requests, notes)
    calls += [call("close_case", outcome=outcome) for outcome in ("handled", "not_verified")]
    return list(dict.fromkeys(one.action for one in calls))


def _changes(order: Mapping[str, Any], requests: list[dict[str, Any]], notes: Mapping[str, Any]) -> list[ToolCall]:
    """All calls that change an opened order."""
    order_id = order["id"]
    calls = [call("decline_request", order_id=order_id, reason=reason) for reason in get_args(Reason)]
    calls.append(call("cancel_order", order_id=order_id))
    addresses = [request["address"] for request in requests if request["address"]]
    calls += [call("change_address", order_id=order_id, address=address) for address in addresses]
    for item in order["items"]:
        given = {"order_id": order_id, "product_id": item["product_id"]}
        calls.append(call("return_item", **given))
        calls += [call("refund", order_id=order_id, amount=amount) for amount in (item["total"], item["total"] // 2)]
        same = [one["id"] for one in notes["products"] if one["kind"] == item["name"].partition(" ")[2]]
        calls += [call("exchange_item", **given, new_product_id=one) for one in same if one != item["product_id"]]
    return calls
