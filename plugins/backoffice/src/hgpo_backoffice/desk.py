"""The state of a case: the database, the customer and what was shown; and the policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgpo_backoffice.database import Database, Order

RETURN_DAYS = 30
"""Returns, exchanges and compensations are possible up to this day after the delivery."""

POLICY = f"""You work in the back office of a shop. \
Handle every request of the customer with the tools, then close the case.

Policies:
1. Before you open an order or change one, find the customer by email and check the postcode with verify_identity. \
Ask the customer for what you do not know. After one failed check, close the case as not_verified and do nothing else.
2. Cancel an order, or change its address, only while it is pending; else decline: already_shipped.
3. Returns, exchanges and compensations need a delivered order; else decline: not_delivered. They end \
{RETURN_DAYS} days after the delivery; later decline: too_late.
4. Return: record the return of the item, then refund its total.
5. Exchange: only if the wanted colour has enough stock; else, unless policy 3 forbids it, decline: out_of_stock.
6. An item that arrived damaged: refund half of its total; the customer keeps it.
7. Do nothing that the customer did not ask for. Give one reason for a declined request. \
Close a case as handled when every request is done or declined."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The state of a case.

    Attributes:
        database: all records.
        answers: detail ("email" or "postcode") -> what the customer says when asked.
        told: the details that the customer has given.
        found: the customer that was found last; "" before.
        verified, failed: customers whose identity was checked, with success or without.
        mentioned, opened: ids of orders that were named, in this order, and whose contents were shown.
        searched: kinds of products that were shown.
        violations: the policies that were violated, in words.
    """

    database: Database
    answers: Mapping[str, str]
    told: frozenset[str] = frozenset()
    found: str = ""
    verified: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    mentioned: tuple[str, ...] = ()
    opened: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()
    violations: frozenset[str] = frozenset()

    def mention(self, *orders: str) -> Desk:
        """The desk after orders were named."""
        return replace(self, mentioned=tuple(dict.fromkeys((*self.mentioned, *orders))))

    def open(self, order_id: str) -> Desk:
        """The desk after the contents of an order were shown."""
        return replace(self.mention(order_id), opened=self.opened | {order_id})

    def violating(self, policy: str, violated: bool) -> Desk:
        """The desk with a violated policy, if `violated`."""
        return replace(self, violations=self.violations | {policy}) if violated else self

    def given(self, detail: str, value: str) -> Desk:
        """The desk after the use of an email or a postcode: the customer has to have given it."""
        return self.violating(f"{detail} of the customer", detail not in self.told or self.answers[detail] != value)

    def checked(self, order: Order) -> Desk:
        """The desk after an access to an order: the identity of its customer has to be verified."""
        return self.violating("identity before personal data", order.customer_id not in self.verified)

    def notes(self) -> dict[str, Any]:
        """What was shown so far, with current values; experts read it."""
        database = self.database
        return {
            "told": {detail: self.answers[detail] for detail in sorted(self.told)},
            "customer": self.found,
            "verified": self.found in self.verified,
            "failed": bool(self.failed),
            "mentioned": list(self.mentioned),
            "orders": {one: asdict(database.orders[one]) for one in self.mentioned if one in self.opened},
            "products": [asdict(one) for one in database.products.values() if one.kind in self.searched],
            "declined": dict(database.declined),
        }
