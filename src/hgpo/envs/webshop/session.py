"""One shopping session: searches, clicks and the purchase."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from hgpo.envs.webshop.pages import BACK, BUY, HIDDEN_SUB_PAGE, NEXT, PREVIOUS, SUB_PAGES, Piece, PieceKind, View
from hgpo.envs.webshop.pages import clickables as clickables_of
from hgpo.envs.webshop.pages import pieces as pieces_of
from hgpo.envs.webshop.reward import RewardParts, score_purchase

if TYPE_CHECKING:
    from hgpo.envs.webshop.catalog import Catalog

RESULTS, PAGE_SIZE = 50, 10
_SUB_PAGES = {name.lower(): name for name in (*SUB_PAGES, HIDDEN_SUB_PAGE)}
_PAGE_KINDS = {"search_results": "results", "item_page": "item", "item_sub_page": "sub", "done": "done"}


def parse_action(action: str) -> tuple[str, str] | None:
    """Verb and argument of `verb[argument]`, as the published pattern `(.+)\\[(.+)\\]` finds them from the start.

    The pattern itself would search from every `[` to the end, which is quadratic.
    """
    line = action.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    return None if start < 1 else (line[:start], line[start + 1 : end])


class Session:
    """The published simulator's transitions for one goal.

    `view` is the current page, `pieces` its strings, `clickables` the arguments of `click[…]`, `visited` the ids of
    products opened since the search page, `purchase` the reward's parts, None before the purchase. A page of results
    has `page_size` of at most `results` products.
    """

    def __init__(self, catalog: Catalog, goal: int, *, results: int = RESULTS, page_size: int = PAGE_SIZE) -> None:
        self.catalog = catalog
        self.goal = catalog.goals[goal]
        self.purchase: RewardParts | None = None
        self._results, self._page_size = results, page_size
        self._rng = random.Random(goal)
        self._product_number = -1
        self._start = View("search", self.goal.instruction, str(goal))
        self._return_to_search()

    def act(self, action: str) -> None:
        """Apply `search[words]` or `click[name]`; any other action changes nothing."""
        parsed = parse_action(action)
        if parsed is None:
            return
        verb, argument = parsed[0], parsed[1].lower()
        if verb == "search":
            self._search(tuple(argument.split(" ")), 1)
        elif verb == "click" and argument in self.clickables and argument != "search":
            self._click(argument, self.clickables[argument])

    def _click(self, argument: str, piece: Piece) -> None:
        view, page_kind = self.view, self._page_kind()
        if argument == BUY.lower():
            self._buy()
        elif argument == BACK.lower():
            self._return_to_search()
        elif argument == NEXT.lower() and page_kind == "results":
            self._search(view.keywords, view.page + 1)
        elif argument == PREVIOUS.lower() and page_kind == "results":
            self._search(view.keywords, view.page - 1)
        elif argument == PREVIOUS.lower() and page_kind == "item":
            self._search(view.keywords, view.page)
        elif argument in _SUB_PAGES:
            self._show(replace(view, kind="sub", sub_page=_SUB_PAGES[argument]))
        else:
            self._open(argument, piece)

    def _open(self, argument: str, piece: Piece) -> None:
        """Open a product, choose an option of it, or return to it."""
        view = replace(self.view, kind="item", products=(), total=0)
        if piece.kind is PieceKind.PRODUCT:
            self._product_number = piece.product
            view = replace(view, product=self.catalog.products[piece.product])
            self.visited.add(piece.text)
        elif piece.kind is PieceKind.OPTION:
            view = replace(view, chosen={**view.chosen, piece.name: argument})
        self._show(view)

    def _search(self, keywords: tuple[str, ...], page: int) -> None:
        found = self._find(keywords)
        # Sliced as in the published code: page 0, which unusual queries lead to, is empty.
        shown = found[(page - 1) * self._page_size : page * self._page_size]
        products = tuple((number, self.catalog.products[number]) for number in shown)
        self._show(
            replace(self._start, kind="results", keywords=keywords, page=page, total=len(found), products=products)
        )

    def _find(self, keywords: tuple[str, ...]) -> list[int]:
        """Positions of the products for a search.

        `<r>` is a random choice; `<a>`, `<c>` and `<q>` list an attribute, a category or a query of the catalogue.
        """
        rest = " ".join(keywords[1:]).strip()
        match keywords[0]:
            case "<r>":
                everything = range(len(self.catalog.products))
                return self._rng.sample(everything, min(self._results, len(everything)))
            case "<a>":
                return self.catalog.having("attributes", rest)
            case "<c>":
                return self.catalog.having("category", keywords[1].strip() if len(keywords) > 1 else "")
            case "<q>":
                return self.catalog.having("query", rest)
        return self.catalog.index.search(" ".join(keywords), self._results)

    def _buy(self) -> None:
        catalog, product = self.catalog, self.view.product
        assert product is not None
        wanted = catalog.products[self.goal.product]
        price = float(catalog.prices[self._product_number])
        self.purchase = score_purchase(product, wanted, self.goal, price, self.view.chosen, catalog.noun_tagger)
        self._show(replace(self.view, kind="done", reward=self.purchase.reward))

    def _return_to_search(self) -> None:
        self.visited: set[str] = set()
        self._show(self._start)

    def _show(self, view: View) -> None:
        self.view = view
        self.pieces = pieces_of(view)
        self.clickables = clickables_of(self.pieces)

    def _page_kind(self) -> str:
        """The kind of page by the first known name in its address, as published, even if it comes from the query."""
        address = self.view.address
        return next((kind for name, kind in _PAGE_KINDS.items() if name in address), "search")
