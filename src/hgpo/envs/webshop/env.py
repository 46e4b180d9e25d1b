"""A shop as an environment, and the observation mode `brief`: short pages for small models.

`brief` leaves out the instruction (see `info["task"]`), the constant buttons and the dollar signs:

    search
    page 1 #B7 warm wool scarf 12 #C2 blue wool scarf 18
    #B7 warm wool scarf 12 ; color red , blue ; size small , large ; chosen blue
    description of #B7 ; knitted by hand

Ids follow `#` without a space, as in `click[B7]`: most tokenizers distinguish words after a space, so this gives the
same tokens, which a model only needs to copy.
"""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.pages import View, as_rich_text, as_text
from hgpo.envs.webshop.product import Product
from hgpo.envs.webshop.session import PAGE_SIZE, RESULTS, Session

SEPARATOR = " ; "
ID_MARK = "#"


def as_brief_text(view: View) -> str:
    """A page in one line."""
    match view.kind, view.product:
        case "results", _:
            return " ".join([f"page {view.page}", *(_line(product) for _, product in view.products)])
        case "item", Product() as product:
            options = [f"{name} {' , '.join(values)}" for name, values in product.options.items()]
            return SEPARATOR.join([_line(product), *options, *_chosen(view)])
        case "sub", Product() as product:
            texts = {"Description": (product.description,), "Features": product.bullet_points}.get(view.sub_page, ())
            return SEPARATOR.join([f"{view.sub_page.lower()} of {ID_MARK}{product.asin}", *filter(None, texts)])
        case "done", Product() as product:
            return SEPARATOR.join([f"bought {_line(product)}", *_chosen(view)])
    return "search"


def _line(product: Product) -> str:
    return f"{ID_MARK}{product.asin} {product.title} {' to '.join(f'{price:g}' for price in product.prices)}"


def _chosen(view: View) -> list[str]:
    return [f"chosen {' , '.join(view.chosen.values())}"] if view.chosen else []


OBSERVATION_MODES = ("text", "text_rich", "brief")


class WebShopEnv:
    """One shopping session at a time.

    Pages, available actions and reward are those of the published simulator. Actions are `search[words]` and
    `click[name]`; other text and unavailable clicks do not change the page. The reward, from 0 to 1, comes with the
    click on `buy now`, which ends the episode; other steps give 0. Only `max_steps` ends an episode otherwise.

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
                raise ValueError(f"{name} is {value}; give a positive number")
        self.catalog = catalog
        self.observation_mode = observation_mode
        self.max_steps = max_steps
        self._sizes = {"results": results, "page_size": page_size}
        self._goal = goal
        self._session: Session | None = None
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
        self._session = Session(self.catalog, goal, **self._sizes)
        return self._observation(self._session), self._info(self._session)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply one action; `RuntimeError` before the first reset and after the end of an episode."""
        session = self._session
        if session is None:
            raise RuntimeError("no episode is running; call reset() before step()")
        session.act(action)
        self._steps += 1
        bought = session.purchase is not None
        truncated = not bought and self.max_steps is not None and self._steps >= self.max_steps
        if bought or truncated:
            self._session = None
        reward = session.purchase.reward if session.purchase else 0.0
        return self._observation(session), reward, bought, truncated, self._info(session)

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
