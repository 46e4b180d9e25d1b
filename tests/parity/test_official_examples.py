"""What a ReAct agent is shown before a task of the official catalogue has that catalogue's form, and no goods of it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hgpo.agents import AgentContext, AgentSpec, make_agent
from hgpo.agents.worked_examples import WorkedExample, load_examples
from hgpo.envs.webshop import Catalog, WebShopEnv

FILES = Path(__file__).parents[3] / "shared" / "webshop"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"the official catalogue is not here: {FILES}")

CATEGORIES = {"fashion", "garden", "beauty", "electronics", "grocery"}
ID = r"[A-Z0-9]{10}"
PRICE = r"\$\d+\.\d+(?: to \$\d+\.\d+)?"
STRING = r"(?:(?! \[SEP\] ).)+"  # one of those between the separators
INSTRUCTION = (
    r"Find me (?:(?! with [\w ]+: )[^:])+(?: with [\w ]+: [^:]+(?:, and [\w ]+: [^:]+)*)?"
    r"(?:, and price lower than \d+\.00 dollars)?"
)
HEAD = rf"Instruction: \[SEP\] {INSTRUCTION} \[SEP\] Back to Search"
FORMS = {
    "search": rf"WebShop \[SEP\] Instruction: \[SEP\] {INSTRUCTION} \[SEP\] Search",
    "results": rf"{HEAD} \[SEP\] Page \d \(Total results: \d+\)(?: \[SEP\] < Prev)? \[SEP\] Next >"
    rf"(?: \[SEP\] {ID} \[SEP\] {STRING} \[SEP\] {PRICE})*",
    "item": rf"{HEAD} \[SEP\] < Prev(?: \[SEP\] (?!Price: ){STRING})+ \[SEP\] Price: {PRICE} \[SEP\] Rating: N\.A\."
    r" \[SEP\] Description \[SEP\] Features \[SEP\] Reviews \[SEP\] Buy Now",
}


def form_of(page: str) -> str | None:
    return next((name for name, form in FORMS.items() if re.fullmatch(form, page)), None)


def test_the_forms_are_those_of_the_recorded_sessions() -> None:
    """All pages but sub-pages and receipts, which no example shows."""
    found = dict.fromkeys(FORMS, 0)
    for session in json.loads((FILES / "official_traces_text.json").read_text())["sessions"]:
        for step in session["steps"]:
            page = step["observation"]
            shown = {
                "search": page.startswith("WebShop"),
                "results": " [SEP] Page " in page,
                "item": page.endswith("Buy Now"),
            }
            for name in [name for name, is_shown in shown.items() if is_shown]:
                found[name] += 1
                assert form_of(page) == name, page
    assert min(found.values()) >= 80


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CATEGORIES))
def test_a_prompt_of_the_official_catalogue_shows_its_form_alone(kind: str) -> None:
    shown = shown_before(official_situation(kind))
    assert [example.kind for example in shown] == [kind, kind]
    for example in shown:
        assert re.fullmatch(INSTRUCTION, example.task)
        forms = [form_of(turn.observation) for turn in example.turns]
        assert None not in forms
        assert set(forms) == set(FORMS)


def test_generated_shops_show_their_own_form() -> None:
    brief = AgentContext("wool scarf , color blue , price under 30", "search", 0, kind="clothing")
    assert [example.kind for example in shown_before(brief)] == ["clothing", "clothing"]
    assert [form_of(turn.observation) for example in shown_before(brief) for turn in example.turns] == [None] * 14


@pytest.mark.slow
def test_the_categories_are_all_that_the_official_catalogue_has() -> None:
    assert {product.category for product in catalog().products} == CATEGORIES


@pytest.mark.slow
def test_nothing_of_the_official_goods_is_shown() -> None:
    products = catalog().products
    official = {text.lower() for product in products for text in (product.asin, product.title, product.query)}
    pages = [turn.observation for example in load_examples("shop") for turn in example.turns]
    strings = {text.lower() for page in pages for text in page.split(" [SEP] ")}
    assert len(strings) > 100
    assert not strings & official


def shown_before(context: AgentContext) -> list[WorkedExample]:
    """The examples in the prompt of a ReAct agent as it is."""
    prompt: Any = make_agent("react", AgentSpec("webshop", "reasoning", 2)).template.render(context)
    told = prompt[0].text
    places = {example: told.find(f"Task: {example.task}\n") for example in load_examples("shop")}
    return sorted((example for example, place in places.items() if place >= 0), key=lambda example: places[example])


def official_situation(kind: str) -> AgentContext:
    number = next(n for n, goal in enumerate(catalog().goals) if catalog().products[goal.product].category == kind)
    observation, info = WebShopEnv(catalog(), "text").reset(goal=number)
    return AgentContext(info["task"], observation, 0, kind=kind)


@cache
def catalog() -> Catalog:
    return Catalog.load(FILES / "items_shuffle_1000.json", FILES / "items_ins_v2_1000.json", seed=1234)
