"""The database of the shop. Values are immutable: a change returns a new database.

Amounts are whole euros. Ids are `c10` (customers), `p10` (products) and `w100` (orders).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Status = Literal["pending", "shipped", "delivered", "cancelled"]


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer; `postcode` proves the identity."""

    id: str
    email: str
    postcode: str


@dataclass(frozen=True, slots=True)
class Product:
    """A product in one colour; products of one kind have one price."""

    id: str
    kind: str
    colour: str
    price: int
    stock: int

    @property
    def name(self) -> str:
        """The name, such as "red lamp"."""
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True, slots=True)
class Item:
    """A line of an order; a product occurs once in an order."""

    product_id: str
    name: str
    quantity: int
    total: int
    returned: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """An order with its payment; `days` since the delivery are None before it, and 0 <= refunded <= paid."""

    id: str
    customer_id: str
    status: Status
    days: int | None
    address: str
    items: tuple[Item, ...]
    paid: int
    refunded: int = 0


@dataclass(frozen=True, slots=True)
class Database:
    """All records by id, and the record of the case: `declined` requests and its `outcome`, "" while it is open."""

    customers: Mapping[str, Customer]
    products: Mapping[str, Product]
    orders: Mapping[str, Order]
    declined: Mapping[str, str] = field(default_factory=dict)
    outcome: str = ""

    def with_order(self, order: Order) -> Database:
        """The database with one order replaced."""
        return replace(self, orders={**self.orders, order.id: order})

    def with_stock(self, product_id: str, change: int) -> Database:
        """The database with the stock of one product changed."""
        product = self.products[product_id]
        return replace(self, products={**self.products, product_id: replace(product, stock=product.stock + change)})

    def digest(self) -> str:
        """SHA-256 of all records, as hexadecimal digits."""
        return digest(asdict(self))


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
