"""A rule-based expert that reads pages and the instruction, not the catalogue.

In generated shops it almost always succeeds. In the official catalogue it is a simple heuristic: search for the
instruction, open the first product within the price limit, choose the named options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgpo.envs.webshop import pages

_PRICE = re.compile(r"price (?:lower than|under) ([\d.]+)")
_AMOUNT = re.compile(r"\$?(\d+(?:\.\d+)?)$")
_BRIEF_PRICE = re.compile(r" ([\d.e+]+)(?: to [\d.e+]+)?$")
_MOST_PAGES = 4


@dataclass(frozen=True, slots=True)
class Instruction:
    """The goal in an instruction: description of the product, values of the options to choose, price limit.

    Example: "wool scarf , color blue , price under 30" is `Instruction("wool scarf", ("blue",), 30.0)`.
    """

    words: str
    options: tuple[str, ...]
    price_upper: float


def parse_instruction(sentence: str) -> Instruction:
    """Read an instruction of a generated shop or a synthetic one of the official catalogue."""
    price = _PRICE.search(sentence)
    limit = float(price[1].rstrip(".")) if price else float("inf")
    if " , " in sentence:
        words, *conditions = sentence.split(" , ")
        values = tuple(text.split(" ", 1)[1] for text in conditions if not text.startswith("price "))
        return Instruction(words, values, limit)
    without_price = sentence[: price.start()].removesuffix(", and ") if price else sentence
    head, *conditions = re.split(r"(?: with |, and )(?=(?:(?! with )[\w ])+: )", without_price)
    return Instruction(head.removeprefix("Find me "), tuple(text.partition(": ")[2] for text in conditions), limit)


class Expert:
    """Searches for the words, opens the first matching product, chooses the options, and buys it if it has them all.

    A product that lacks an option is not opened again. If no page of results has a match, the expert searches again and
    buys the first product.
    """

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Start a session. The task is `info["task"]`."""
        self._instruction = parse_instruction(str(info["task"]))
        self._rejected: set[str] = set()
        self._chosen: set[str] = set()
        self._opened = ""
        self._pages_turned = 0
        self._accepts_any = False

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next action. Earlier actions need not be the expert's own. Call it once per step."""
        available = info["available_actions"]
        clickables: Sequence[str] = available["clickables"]
        if "buy now" in clickables:
            return self._on_item(observation, clickables)
        if "next >" not in clickables and not available["has_search_bar"]:  # a sub-page keeps the chosen options
            return "click[< prev]"
        self._chosen.clear()
        if available["has_search_bar"]:
            self._pages_turned = 0
            return f"search[{self._instruction.words}]"
        return self._on_results(observation, clickables)

    def _on_results(self, observation: str, clickables: Sequence[str]) -> str:
        offers = read_offers(observation, clickables)
        for offer in offers:
            if self._accepts_any or (offer.asin not in self._rejected and self._fits(offer)):
                self._opened = offer.asin
                return f"click[{offer.asin}]"
        if offers and self._pages_turned < _MOST_PAGES:
            self._pages_turned += 1
            return "click[next >]"
        self._accepts_any = True
        return "click[back to search]"

    def _on_item(self, observation: str, clickables: Sequence[str]) -> str:
        if not self._accepts_any and any(value not in clickables for value in self._instruction.options):
            self._rejected.add(self._opened)
            return "click[< prev]"
        chosen = self._read_chosen(observation)
        for value in self._instruction.options:
            if value in clickables and value not in chosen:
                self._chosen.add(value)
                return f"click[{value}]"
        return "click[buy now]"

    def _read_chosen(self, observation: str) -> set[str]:
        """The chosen options that a `brief` page shows; for other pages, the options that the expert clicked."""
        if pages.SEPARATOR in observation or "[button]" in observation:
            return self._chosen
        last = observation.split(pages.BRIEF_SEPARATOR)[-1]
        return set(last.removeprefix("chosen ").split(" , ")) if last.startswith("chosen ") else set()

    def _fits(self, offer: Offer) -> bool:
        if offer.price > self._instruction.price_upper:
            return False
        return not offer.brief or set(self._instruction.words.split()) <= set(offer.title.split())


@dataclass(frozen=True, slots=True)
class Offer:
    """A product on a page of results; `price` is the lower end of a range, `brief` the page's observation mode."""

    asin: str
    title: str
    price: float
    brief: bool


def read_offers(observation: str, clickables: Sequence[str]) -> list[Offer]:
    """The products on a page of results, in any observation mode."""
    links = [name for name in clickables if name not in ("back to search", "next >", "< prev")]
    if observation.startswith("page "):
        return _read_brief_offers(observation, links)
    parts = observation.split(pages.SEPARATOR) if pages.SEPARATOR in observation else observation.split("\n")
    offers = []
    for asin in links:
        place = next(number for number, part in enumerate(parts) if asin.upper() in part.upper().split())
        price = _AMOUNT.search(parts[place + 2].split(" to ")[0])
        offers.append(Offer(asin, parts[place + 1], float(price[1]) if price else 0.0, False))
    return offers


def _read_brief_offers(observation: str, links: Sequence[str]) -> list[Offer]:
    """The products on a `brief` page. Titles may contain any text, so the entries are found by their ids in `links`."""
    starts = [re.search(rf" {pages.ID_MARK}{re.escape(asin)} ", observation, re.IGNORECASE) for asin in links]
    offers = []
    for asin, start, following in zip(links, starts, [*starts, None][1:], strict=True):
        assert start is not None, f"{asin} can be clicked but is not on the page"
        line = observation[start.end() : following.start() if following else None]
        price = _BRIEF_PRICE.search(line)
        assert price is not None, f"no price in {line!r}"
        offers.append(Offer(asin, line[: price.start()], float(price[1]), True))
    return offers
