"""Generated cases: a database, a customer with one or two requests, and the solution."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import combinations
from random import Random

from hgpo.tool_calls import ToolCall
from hgpo_backoffice.database import Customer, Database, Item, Order, Product, Status
from hgpo_backoffice.desk import RETURN_DAYS, Desk
from hgpo_backoffice.requests import KINDS, Request, call, next_call
from hgpo_backoffice.tools import call_tool

UNSEEN = (("cancel", "exchange"), ("address", "return"), ("address", "damaged"), ("exchange", "damaged"))
"""Combinations of requests that only `valid_unseen` has."""
SEEN = (*((kind,) for kind in KINDS), *(pair for pair in combinations(KINDS, 2) if pair not in UNSEEN))
"""The combinations of the other splits."""
_GOODS = ("lamp", "chair", "kettle", "jacket", "mirror", "radio", "carpet", "teapot")
_COLOURS = ("red", "blue", "green", "white")
_NAMES = ("ann", "ben", "cora", "dan", "eva", "finn", "gina", "hugo")
_STREETS = ("oak street", "mill lane", "park road", "river walk")
_STATUSES: tuple[Status, ...] = ("pending", "shipped", "delivered", "delivered")
_MOST_CALLS = 2  # that change something, for one request
_POSTCODES = tuple(str(number) for number in range(1_000, 2_000, 25))
_NOT_VERIFIED = 0.1  # share of cases whose customer gives a wrong postcode


@dataclass(frozen=True, slots=True)
class Case:
    """A task: its start, the customer's first message, and what the message asks for.

    Attributes:
        solution: the calls that change the database, in order.
        solved: digest of the database after them.
    """

    desk: Desk
    message: str
    requests: tuple[Request, ...]
    solution: tuple[ToolCall, ...]
    solved: str


def make_case(kinds: tuple[str, ...], rng: Random) -> Case:
    """Draw a case with requests of these kinds, in random order; their orders have different kinds of products."""
    numbers = rng.sample(range(10, 100), 3)
    postcodes = rng.sample(_POSTCODES, 3)
    customers = [
        Customer(f"c{number}", f"{name}{rng.randint(1, 9)}@example.com", postcode)
        for number, name, postcode in zip(numbers, rng.sample(_NAMES, 3), postcodes, strict=True)
    ]
    goods = rng.sample(_GOODS, len(_GOODS))
    orders = _Orders(goods, rng)
    owner = customers[0].id
    asked = {}
    for kind, good in zip(rng.sample(kinds, len(kinds)), goods, strict=False):
        request = orders.add_with_request(kind, owner, [good, goods[-1]][: rng.randint(1, 2)])
        asked[orders.made[-1].id] = request
    for other, good in zip((owner, owner, customers[1].id, customers[2].id), goods[len(asked) :], strict=False):
        if len(orders.made) < 3 or other != owner:
            orders.add(other, rng.choice(_STATUSES), [good])
    database = Database(
        {one.id: one for one in sorted(customers, key=lambda one: one.id)},
        {one.id: one for one in sorted(orders.products, key=lambda one: one.id)},
        {one.id: one for one in sorted(orders.made, key=lambda one: one.id)},
    )
    return _with_solution(database, customers[0], asked, rng)


class _Orders:
    """Draws products and orders."""

    def __init__(self, goods: list[str], rng: Random) -> None:
        self._rng = rng
        self._ids = iter(rng.sample(range(100, 200), len(goods)))
        numbers = iter(rng.sample(range(10, 100), 3 * len(goods)))
        prices = {good: 4 * rng.randint(2, 10) for good in goods}
        self.made: list[Order] = []
        self.products = [
            Product(f"p{next(numbers)}", good, colour, prices[good], rng.randint(0, 3))
            for good in goods
            for colour in rng.sample(_COLOURS, 3)
        ]

    def add(self, owner: str, status: Status, goods: list[str], last_day: int = 2 * RETURN_DAYS) -> Order:
        """An order with one or two pieces of each of `goods`."""
        rng, items = self._rng, []
        for good in goods:
            product, quantity = rng.choice([one for one in self.products if one.kind == good]), rng.randint(1, 2)
            items.append(Item(product.id, product.name, quantity, quantity * product.price))
        days = rng.randint(1, last_day) if status == "delivered" else None
        address, paid = f"{rng.randint(1, 20)} {rng.choice(_STREETS)}", sum(item.total for item in items)
        self.made.append(Order(f"w{next(self._ids)}", owner, status, days, address, tuple(items), paid))
        return self.made[-1]

    def add_with_request(self, kind: str, owner: str, goods: list[str]) -> Request:
        """A request about the first item of a new order; the policies allow about half of them."""
        rng = self._rng
        allowed: Status = "pending" if kind in ("cancel", "address") else "delivered"
        status = allowed if kind == "damaged" or rng.random() < 0.6 else rng.choice(_STATUSES)
        order = self.add(owner, status, goods, RETURN_DAYS if rng.random() < 0.4 else 2 * RETURN_DAYS)
        item = order.items[0]
        others = [one.name for one in self.products if one.kind == goods[0] and one.name != item.name]
        return Request(
            kind,
            order.id if rng.random() < 0.6 else "",
            item.name,
            wanted=rng.choice(others) if kind == "exchange" else "",
            address=f"{rng.randint(21, 40)} {rng.choice(_STREETS)}" if kind == "address" else "",
        )


def _with_solution(database: Database, customer: Customer, asked: dict[str, Request], rng: Random) -> Case:
    """The case; `asked` has each request by the id of its order."""
    honest = rng.random() >= _NOT_VERIFIED
    wrong = rng.choice([one for one in _POSTCODES if one != customer.postcode])
    answers = {"email": customer.email, "postcode": customer.postcode if honest else wrong}
    told = frozenset(detail for detail in answers if rng.random() < 0.5)
    requests = tuple(asked.values())
    desk = Desk(database, answers, told, mentioned=tuple(one.order_id for one in requests if one.order_id))
    greeting = "".join(f" My {detail} is {answers[detail]}." for detail in sorted(told))
    wishes = " Also, ".join(f"{request.text(rng.randrange(2))}." for request in requests)
    message = f"Hello.{greeting} {wishes[0].upper()}{wishes[1:]}"
    solution, solved = _solution(desk, asked if honest else {}, "handled" if honest else "not_verified")
    return Case(desk, message, requests, tuple(solution), solved.digest())


def _solution(desk: Desk, asked: dict[str, Request], outcome: str) -> tuple[list[ToolCall], Database]:
    """The calls that change the database, found with the whole database in view, and the database after them."""
    calls = []
    for order_id, request in asked.items():
        for _ in range(_MOST_CALLS):
            products = [asdict(product) for product in desk.database.products.values()]
            order = asdict(desk.database.orders[order_id])
            if needed := next_call(request, order, products, desk.database.declined):
                calls.append(needed)
                desk, _ = call_tool(desk, needed.name, needed.arguments)
    calls.append(call("close_case", outcome=outcome))
    return calls, replace(desk.database, outcome=outcome)
