"""The twelve tools: typed arguments, JSON schemas, and what each does. Model output is untrusted.

A tool that cannot do what is asked changes nothing, and its result is `{"error": "…"}`. Tools keep the database
consistent; they do not enforce the policies, whose violations are recorded (`Desk.violations`).

A tool is a model of its arguments: an instance is a call, and `_run` returns the new desk and the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hgpo_backoffice.database import Item, Order
from hgpo_backoffice.desk import RETURN_DAYS, Desk

Reason = Literal["already_shipped", "not_delivered", "too_late", "out_of_stock"]
CustomerId = Annotated[str, Field(pattern="^c[0-9]{2}$", description="such as c10")]
ProductId = Annotated[str, Field(pattern="^p[0-9]{2}$", description="such as p10")]
OrderId = Annotated[str, Field(pattern="^w[0-9]{3}$", description="such as w100")]
Text = Annotated[str, Field(min_length=1, max_length=80)]
Outcome = tuple[Desk, dict[str, Any]]


class ToolError(Exception):
    """A call that cannot be carried out; the message is the result."""


class Tool(BaseModel):
    """A call of a tool: unknown arguments and other types are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def _run(self, desk: Desk) -> Outcome:
        raise NotImplementedError


class FindCustomer(Tool):
    """Find the id of a customer by email."""

    email: Text

    def _run(self, desk: Desk) -> Outcome:
        found = [customer.id for customer in desk.database.customers.values() if customer.email == self.email]
        if not found:
            raise ToolError("no customer has this email")
        return replace(desk.given("email", self.email), found=found[0]), {"customer_id": found[0]}


class VerifyIdentity(Tool):
    """Check the postcode of a customer; lists the customer's orders if it is right."""

    customer_id: CustomerId
    postcode: Annotated[str, Field(pattern="^[0-9]{4}$", description="four digits")]

    def _run(self, desk: Desk) -> Outcome:
        customer = desk.database.customers.get(self.customer_id)
        if customer is None:
            raise ToolError(f"there is no customer {self.customer_id}")
        desk = desk.given("postcode", self.postcode).violating("find by email", desk.found != customer.id)
        if customer.postcode != self.postcode:
            return replace(desk, failed=desk.failed | {customer.id}), {"customer_id": customer.id, "verified": False}
        orders = tuple(order.id for order in desk.database.orders.values() if order.customer_id == customer.id)
        desk = replace(desk, verified=desk.verified | {customer.id}).mention(*orders)
        return desk, {"customer_id": customer.id, "verified": True, "orders": list(orders)}


class GetOrder(Tool):
    """Show an order: status, days since the delivery, address, items and payment."""

    order_id: OrderId

    def _run(self, desk: Desk) -> Outcome:
        order = _order(desk, self.order_id)
        return desk.checked(order).open(order.id), asdict(order)


class FindProducts(Tool):
    """Show all colours of a kind of product, with price and stock."""

    kind: Annotated[Text, Field(description="without the colour, such as lamp")]

    def _run(self, desk: Desk) -> Outcome:
        found = [asdict(product) for product in desk.database.products.values() if product.kind == self.kind]
        if not found:
            raise ToolError(f"there is no product of the kind {self.kind!r}")
        return replace(desk, searched=desk.searched | {self.kind}), {"products": found}


class CancelOrder(Tool):
    """Cancel an order and refund what was paid."""

    order_id: OrderId

    def _run(self, desk: Desk) -> Outcome:
        order = _order_on_its_way(desk, self.order_id)
        desk = desk.checked(order).violating("cancel before shipping", order.status == "shipped")
        for item in order.items:
            desk = replace(desk, database=desk.database.with_stock(item.product_id, item.quantity))
        return _changed(desk, replace(order, status="cancelled", refunded=order.paid))


class ReturnItem(Tool):
    """Record the return of an item; the refund is a call of its own."""

    order_id: OrderId
    product_id: ProductId

    def _run(self, desk: Desk) -> Outcome:
        order = _order(desk, self.order_id)
        item = _item(order, self.product_id)
        items = tuple(replace(one, returned=one.returned or one is item) for one in order.items)
        desk = replace(_in_time(desk, order), database=desk.database.with_stock(item.product_id, item.quantity))
        desk = desk.violating("return before refund", order.refunded > 0)
        return _changed(desk, replace(order, items=items))


class Refund(Tool):
    """Refund an amount to the customer's payment method."""

    order_id: OrderId
    amount: Annotated[int, Field(ge=1, le=10_000, description="whole euros")]

    def _run(self, desk: Desk) -> Outcome:
        order = _order(desk, self.order_id)
        if (left := order.paid - order.refunded) < self.amount:
            raise ToolError(f"{order.paid} was paid for order {order.id}, and {left} of it is not refunded")
        desk = _in_time(desk, order).violating("refund after delivery", order.status != "delivered")
        return _changed(desk, replace(order, refunded=order.refunded + self.amount))


class ExchangeItem(Tool):
    """Exchange an item for another colour of the same kind."""

    order_id: OrderId
    product_id: ProductId
    new_product_id: ProductId

    def _run(self, desk: Desk) -> Outcome:
        order, database = _order(desk, self.order_id), desk.database
        item, new = _item(order, self.product_id), database.products.get(self.new_product_id)
        if new is None or new.kind != database.products[item.product_id].kind:
            raise ToolError(f"{self.new_product_id} is no product of the same kind")
        if any(one.product_id == new.id for one in order.items):
            raise ToolError(f"order {order.id} has the item {new.id} already")
        if new.stock < item.quantity:
            raise ToolError(f"the stock of {new.id} is {new.stock}, and {item.quantity} are needed")
        database = database.with_stock(item.product_id, item.quantity).with_stock(new.id, -item.quantity)
        exchanged = replace(item, product_id=new.id, name=new.name)
        items = tuple(exchanged if one is item else one for one in order.items)
        return _changed(replace(_in_time(desk, order), database=database), replace(order, items=items))


class ChangeAddress(Tool):
    """Change the address of an order."""

    order_id: OrderId
    address: Text

    def _run(self, desk: Desk) -> Outcome:
        order = _order_on_its_way(desk, self.order_id)
        desk = desk.checked(order).violating("address before shipping", order.status == "shipped")
        return _changed(desk, replace(order, address=self.address))


class AskCustomer(Tool):
    """Reply to the customer with a question."""

    detail: Literal["email", "postcode"]

    def _run(self, desk: Desk) -> Outcome:
        said = {"customer": f"My {self.detail} is {desk.answers[self.detail]}"}
        return replace(desk, told=desk.told | {self.detail}), said


class DeclineRequest(Tool):
    """Reply to the customer that a request about an order is declined, with the reason."""

    order_id: OrderId
    reason: Reason

    def _run(self, desk: Desk) -> Outcome:
        order = _order(desk, self.order_id)
        declined = {**desk.database.declined, order.id: self.reason}
        desk = desk.violating("one reason", desk.database.declined.get(order.id, self.reason) != self.reason)
        return replace(desk.checked(order), database=replace(desk.database, declined=declined)), {"customer": "I see"}


class CloseCase(Tool):
    """Say goodbye to the customer and close the case."""

    outcome: Literal["handled", "not_verified"]

    def _run(self, desk: Desk) -> Outcome:
        desk = desk.violating("not_verified without a failed check", self.outcome == "not_verified" and not desk.failed)
        desk = desk.violating("handled after a failed check", self.outcome == "handled" and bool(desk.failed))
        return replace(desk, database=replace(desk.database, outcome=self.outcome)), {"case": "closed"}


def _order(desk: Desk, order_id: str) -> Order:
    if order_id not in desk.database.orders:
        raise ToolError(f"there is no order {order_id}")
    return desk.database.orders[order_id]


def _order_on_its_way(desk: Desk, order_id: str) -> Order:
    order = _order(desk, order_id)
    if order.status not in ("pending", "shipped"):
        raise ToolError(f"order {order.id} is {order.status}")
    return order


def _item(order: Order, product_id: str) -> Item:
    """The line of an order that is to be returned or exchanged."""
    item = next((item for item in order.items if item.product_id == product_id and not item.returned), None)
    if item is None:
        raise ToolError(f"order {order.id} has no item {product_id}, or it was returned")
    if order.status != "delivered":
        raise ToolError(f"order {order.id} is {order.status}, not delivered")
    return item


def _in_time(desk: Desk, order: Order) -> Desk:
    return desk.checked(order).violating(f"{RETURN_DAYS} days", order.days is not None and order.days > RETURN_DAYS)


def _changed(desk: Desk, order: Order) -> Outcome:
    """The desk with a changed order, and the order as the result."""
    return replace(desk, database=desk.database.with_order(order)).open(order.id), asdict(order)


TOOLS: dict[str, type[Tool]] = {
    re.sub("(?<=.)([A-Z])", r"_\1", tool.__name__).lower(): tool
    for tool in (
        *(FindCustomer, VerifyIdentity, GetOrder, FindProducts, CancelOrder, ReturnItem, Refund),
        *(ExchangeItem, ChangeAddress, AskCustomer, DeclineRequest, CloseCase),
    )
}
"""Name -> tool."""


def _schema(name: str) -> dict[str, Any]:
    """Name, description and JSON schema of the arguments, as `info["tools"]` and servers have it."""
    written = TOOLS[name].model_json_schema()
    for titled in (written, *written["properties"].values()):
        del titled["title"]
    return {"name": name, "description": written.pop("description"), "parameters": written}


SCHEMAS = [_schema(name) for name in TOOLS]


def call_tool(desk: Desk, name: str, arguments: Mapping[str, Any]) -> Outcome:
    """Carry out a call of untrusted JSON values; letter case is ignored. An error leaves the desk as it is."""
    name = name.strip().lower()
    if name not in TOOLS:
        return desk, {"error": f"unknown tool; the tools are {', '.join(TOOLS)}"}
    folded = {key: " ".join(one.lower().split()) if isinstance(one, str) else one for key, one in arguments.items()}
    try:
        after, result = TOOLS[name].model_validate(folded)._run(desk)
        return after.violating("nothing after a failed check", bool(desk.failed) and name != "close_case"), result
    except ValidationError as error:
        reasons = [f"{'.'.join(map(str, one['loc']))[:40]}: {one['msg'][:80]}" for one in error.errors()[:3]]
        return desk, {"error": f"{name}: {'; '.join(reasons)}"}
    except ToolError as error:
        return desk, {"error": str(error)}
