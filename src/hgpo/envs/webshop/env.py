"""A shop as an environment, and its shopping sessions."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from typing import Any

from hgpo.envs.base import check_action
from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.goals import NO_PRICE_LIMIT
from hgpo.envs.webshop.pages import (
    BACK,
    BUY,
    HIDDEN_SUB_PAGE,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    Piece,
    PieceKind,
    View,
    as_brief_text,
    as_rich_text,
    as_text,
)
from hgpo.envs.webshop.pages import clickables as clickables_of
from hgpo.envs.webshop.pages import pieces as pieces_of
from hgpo.envs.webshop.reward import RewardParts, score_purchase

RESULTS, PAGE_SIZE = 50, 10
_SUB_PAGES = {name.lower(): name for name in (*SUB_PAGES, HIDDEN_SUB_PAGE)}
_PAGE_KINDS = {"search_results": "results", "item_page": "item", "item_sub_page": "sub", "done": "done"}


def parse_action(action: str) -> tuple[str, str] | None:
    """Verb and argument of `verb[argument]`, as the published pattern `(.+)\\[(.+)\\]` matches them, or None.

    Matching the pattern itself takes quadratic time, since it searches from every `[` to the end.
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
        self._draws = 0
        self._product_number = -1
        self._start = View("search", self.goal.instruction, str(goal))
        self._return_to_search()

    def state_key(self) -> str:
        """The exact state as text: the page, what was chosen and opened, and the number of random searches."""
        view = self.view
        product = self._product_number if view.product else None
        page: list[object] = [view.kind, view.keywords, view.page, product, view.sub_page]
        page += [list(view.chosen.items()), sorted(self.visited), self._draws]
        if view.keywords[:1] == ("<r>",):
            page.append([number for number, _ in view.products])
        return json.dumps(page)

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
                self._draws += 1
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
        """The kind of page: as published, the first known name in the address, even if the query contains the name."""
        address = self.view.address
        return next((kind for name, kind in _PAGE_KINDS.items() if name in address), "search")


OBSERVATION_MODES = ("text", "text_rich", "brief")


class WebShopEnv:
    """One shopping session at a time.

    Pages, available actions and reward are those of the published simulator. Actions are `search[words]` and
    `click[name]`; other text and unavailable clicks do not change the page. The reward, from 0 to 1, comes with the
    click on `buy now`, which ends the episode; other steps give 0. Otherwise only `max_steps` ends an episode.

    `observation_mode`: `text` and `text_rich` are published, `brief` is a short line for small models.

    `info` has the same keys at reset and at each step: `available_actions` (`has_search_bar` and `clickables`,
    a list in the page's order), `admissible_commands` (a `click[…]` for each; searches, which take any words, are
    not listed), `task` (the instruction), `goal` (its number), `won` (bought at a reward of 1), `score`
    (the reward so far), `reward_parts` (None before the purchase, then a dict) and `nouns` (the tagger of the
    title score).

    Example:
        >>> env = WebShopEnv(catalog)  # doctest: +SKIP
        >>> observation, info = env.reset(goal=17)  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("search[blue mug]")  # doctest: +SKIP
    """

    def __init__(
        self,
        catalog: Catalog,
        observation_mode: str = "text",
        *,
        goal: int | None = None,
        max_steps: int | None = None,
        results: int = RESULTS,
        page_size: int = PAGE_SIZE,
    ) -> None:
        if observation_mode not in OBSERVATION_MODES:
            raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
        for name, value in {"max_steps": max_steps, "results": results, "page_size": page_size}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; give a whole number of at least 1")
        self.catalog = catalog
        self.observation_mode = observation_mode
        self.max_steps = max_steps
        self._sizes = {"results": results, "page_size": page_size}
        self._goal = goal
        self._session: Session | None = None
        self._running = False
        self._number = -1
        self._steps = 0

    def reset(self, *, goal: int | None = None, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start a session for `goal`, else for the constructor's goal, else for one drawn by `seed`."""
        if goal is None:
            goal = self._goal
        if goal is None:
            goal = self.catalog.draw_goal(random.Random(seed))
        if not 0 <= goal < len(self.catalog.goals):
            raise ValueError(f"goal {goal}: this catalogue has goals 0 to {len(self.catalog.goals) - 1}")
        self._number, self._steps = goal, 0
        self._session, self._running = Session(self.catalog, goal, **self._sizes), True
        return self._observation(self._session), self._info(self._session)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply one action; `RuntimeError` before the first reset and after the end of an episode."""
        check_action(action, self._running)
        session = self._session
        assert session is not None, "an episode is running"
        session.act(action)
        self._steps += 1
        bought = session.purchase is not None
        truncated = not bought and self.max_steps is not None and self._steps >= self.max_steps
        self._running = not (bought or truncated)
        reward = session.purchase.reward if session.purchase else 0.0
        return self._observation(session), reward, bought, truncated, self._info(session)

    def state_key(self) -> str:
        """The exact state as text; also after the end of an episode."""
        if self._session is None:
            raise RuntimeError("no episode was started; call reset() before state_key()")
        return self._session.state_key()

    def identity(self) -> dict[str, Any]:
        """Digest and size of the catalogue, the goal's price bound, and the page in the mode `text`."""
        if self._session is None:
            raise RuntimeError("no episode was started; call reset() before identity()")
        bound = self._session.goal.price_upper
        return {
            "game": self.catalog.digest,
            "products": len(self.catalog.products),
            "price_bound": None if bound == NO_PRICE_LIMIT else bound,
            "observation": as_text(self._session.pieces),
        }

    def _observation(self, session: Session) -> str:
        if self.observation_mode == "text":
            return as_text(session.pieces)
        if self.observation_mode == "text_rich":
            return as_rich_text(session.pieces, session.view.address, session.visited)
        return as_brief_text(session.view)

    def _info(self, session: Session) -> dict[str, Any]:
        parts = session.purchase
        clickables = list(session.clickables)
        return {
            "available_actions": {"has_search_bar": session.view.kind == "search", "clickables": clickables},
            "admissible_commands": [f"click[{name}]" for name in clickables if name not in ("", "search")],
            "task": session.goal.instruction,
            "goal": self._number,
            "won": parts is not None and parts.reward == 1.0,
            "score": parts.reward if parts else 0.0,
            "reward_parts": asdict(parts) if parts else None,
            "nouns": self.catalog.nouns,
        }
