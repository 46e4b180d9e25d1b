"""Explains the actions of the shops' expert in plain English, from the instruction and the pages alone."""

from __future__ import annotations

import re

from playing import NoWords
from wording import Wording, with_article

from hgpo.envs.base import Info
from hgpo.envs.webshop.expert import Offer, parse_instruction, read_offers

_OFFICIAL = "Find me "
_PRICE = ", and price lower than "
_CONDITION = re.compile(r"(?: with |, and )((?:(?! with )[\w ])+: [^,]+)")
_JOINING = frozenset(["with", "for", "and"])


class ShopNarrator:
    """Explains the actions of one purchase after the other; `first` is the index of the first wording."""

    def __init__(self, first: int) -> None:
        self._first = first

    def reset(self, info: Info) -> None:
        """Start a session."""
        task = str(info["task"])
        self._wanted = parse_instruction(task)
        self._option_of = dict(zip(self._wanted.options, _conditions(task), strict=True))  # "blue" -> "color blue"
        self._is_official = task.startswith(_OFFICIAL)
        self._words = Wording(self._first)
        self._offer: Offer | None = None
        self._ruled_out: set[str] = set()
        self._chosen: list[str] = []

    def explain(self, observation: str, info: Info, action: str) -> str:
        """The thought before `action`."""
        available = info["available_actions"]
        clickables: list[str] = available["clickables"]
        clicked = action.removeprefix("click[").removesuffix("]")
        if action.startswith("search["):
            return self._search()
        if "buy now" in clickables:
            return self._on_item(clicked, clickables)
        if "next >" in clickables:
            return self._on_results(clicked, read_offers(observation, clickables))
        raise NoWords(action)

    def _search(self) -> str:
        if self._offer is not None:
            raise NoWords("searches once more")
        wordings = (
            "I need {product} {joined} {options}, for less than {limit}. I search for the product first and choose the "
            "options on its page.",
            "The task asks for {product} {joined} {options}, priced under {limit}. I search by the words of the "
            "product; price and options I check later.",
        )
        joined = "in" if self._is_official else "with"  # "cardigans with long sleeve in color navy"
        return self._say("search", wordings, joined=joined, options=_listed(list(self._option_of.values())))

    def _on_results(self, clicked: str, offers: list[Offer]) -> str:
        fitting = {offer.asin: offer for offer in offers if self._fits(offer)}
        if clicked == "next >":
            return self._turn_page(offers, bool(set(fitting) - self._ruled_out))
        if clicked not in fitting or clicked in self._ruled_out:
            raise NoWords(f"opens {clicked}, which does not fit")
        self._offer, self._chosen = fitting[clicked], []
        if self._ruled_out:
            wordings: tuple[str, ...] = (
                "{id} has all the words of the product, too, and costs {price}, within the limit of {limit}. I open it "
                "instead.",
                "The next one that fits is {id}, {product} for {price}. I check whether it comes with all I need.",
            )
        else:
            wordings = (
                "{id}, {product} for {price}, is within the limit of {limit}. I open it to see its options.",
                "{id} has all the words of the product, and its price of {price} is under {limit}. I look at its page.",
            )
        return self._say("open", wordings)

    def _turn_page(self, offers: list[Offer], some_left: bool) -> str:
        if some_left:
            raise NoWords("leaves a page with a product that fits")
        if any(offer.asin in self._ruled_out for offer in offers):
            wordings: tuple[str, ...] = (
                "This page has no other {words} within the limit of {limit}. I turn to the next page.",
                "Everything else on this page costs too much or is something else, so I go on to the next page.",
            )
        else:
            wordings = ("This page has no {words} within the limit of {limit}. I turn to the next page.",)
        return self._say("next", wordings)

    def _on_item(self, clicked: str, clickables: list[str]) -> str:
        assert self._offer is not None, "an item's page before any product was opened"
        missing = [self._option_of[value] for value in self._wanted.options if value not in clickables]
        if clicked == "< prev" and missing:
            self._ruled_out.add(self._offer.asin)
            wordings = (
                "{id} is not sold with {missing}. I go back to the results for another one.",
                "This page does not offer {missing}, so {id} is not what I need. I go back.",
            )
            return self._say("back", wordings, missing=_listed(missing))
        if clicked in self._option_of:
            self._chosen.append(clicked)
            return self._choose(clicked)
        if clicked != "buy now" or set(self._chosen) != set(self._wanted.options):
            raise NoWords(clicked)
        wordings = (
            "I have chosen {options}, and {price} is within the limit of {limit}. Everything fits, so I buy it.",
            "{id} is the right product at a price I may pay, with {options} as asked for. Now I buy it.",
        )
        return self._say("buy", wordings, options=_listed([self._option_of[value] for value in self._chosen]))

    def _choose(self, value: str) -> str:
        if len(self._chosen) == 1:
            wordings = (
                "The page offers {option}, which the task asks for. I choose it.",
                "{option} is among the options here, as the task wants it. I click it.",
            )
        else:
            wordings = (
                "I have chosen {done}. The next option is {option}, which is offered, too.",
                "After {done} comes {option}, which I find here as well.",
            )
        done = _listed([self._option_of[earlier] for earlier in self._chosen[:-1]])
        return self._say(f"choose {bool(done)}", wordings, option=self._option_of[value], done=done)

    def _fits(self, offer: Offer) -> bool:
        """Whether the words match and the price is below the limit; "under 30" excludes 30, which the shop accepts."""
        return offer.price < self._wanted.price_upper and _words(self._wanted.words) <= _words(offer.title)

    def _say(self, thought: str, wordings: tuple[str, ...], **names: str) -> str:
        offer = self._offer
        return self._words.say(
            thought,
            wordings,
            product=self._wanted.words if self._is_official else with_article(self._wanted.words),
            words=self._wanted.words,
            limit=f"{self._wanted.price_upper:g}",
            id=offer.asin.upper() if offer else "",
            price=f"{offer.price:g}" if offer else "",
            **names,
        )


def _conditions(task: str) -> list[str]:
    """What options are asked for, in either wording of a task: `["color blue", "size small"]`."""
    if not task.startswith(_OFFICIAL):
        return [text for text in task.split(" , ")[1:] if not text.startswith("price ")]
    return [text.replace(": ", " ") for text in _CONDITION.findall(task.partition(_PRICE)[0])]


def _words(text: str) -> set[str]:
    """The words that say what a product is, lower case."""
    return set(re.findall(r"[\w'-]+", text.lower())) - _JOINING


def _listed(things: list[str]) -> str:
    """`"color blue"`, `"color blue and size small"`."""
    return " and ".join(things)
