"""The three commands, on a small book worked out by hand."""

from __future__ import annotations

import pytest

from hgpo_textcraft.env import Crafting
from hgpo_textcraft.recipe_book import Ingredient, Recipe, RecipeBook, item_id


def part(name: str, count: int, *, is_group: bool = False) -> Ingredient:
    return Ingredient(item_id(name), count, is_group)


BOOK = RecipeBook(
    [
        Recipe(item_id("oak plank"), 4, (part("oak log", 1),), item_id("planks")),
        Recipe(item_id("elm plank"), 4, (part("elm log", 1),), item_id("planks")),
        Recipe(item_id("stick"), 4, (part("planks", 2, is_group=True),)),
        Recipe(item_id("torch"), 1, (part("stick", 1), part("coal", 2))),
    ],
    groups={item_id("planks")},
)


def answers(*commands: str) -> list[str]:
    crafting = Crafting(BOOK)
    return [crafting.act(command) for command in commands]


def test_a_torch_is_made_from_what_the_world_has() -> None:
    assert answers(
        "get 1 oak log",
        "craft 4 oak plank using 1 oak log",
        "craft 4 stick using 2 oak plank",
        "get 2 coal",
        "craft 1 torch using 2 coal, 1 stick",
        "inventory",
    ) == [
        "Got 1 oak log",
        "Crafted 4 minecraft:oak_plank",
        "Crafted 4 minecraft:stick",
        "Got 2 coal",
        "Crafted 1 minecraft:torch",
        "Inventory: [oak plank] (2) [stick] (3) [torch] (1) ",
    ]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("inventory", "Inventory: You are not carrying anything."),
        ("get 2 oak plank", "Could not find oak plank"),
        ("get 2 planks", "Could not find planks"),
        ("get 2 gold", "Could not find gold"),
        ("get oak log", "Could not execute get oak log"),
        ("look", "Could not execute look"),
        ("", "Could not execute "),
        ("get 1234567890 coal", "Could not execute get 1234567890 coal"),
        ("craft 1 torch using 1 stick, 2 coal", "Could not find enough items to craft minecraft:torch"),
        ("craft 1 torch using stick", "Wrong item format: stick"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(command: str, answer: str) -> None:
    crafting = Crafting(BOOK)
    assert crafting.act(command) == answer
    assert crafting.inventory == {}
    assert crafting.made is None


def test_wrong_amounts_and_surplus_parts_make_nothing() -> None:
    *_, wrong, surplus, ready = answers(
        "get 2 oak log",
        "get 3 coal",
        "craft 4 oak plank using 2 oak log",
        "craft 4 oak plank using 1 oak log, 1 coal",
        "craft oak plank using 1 oak log",
    )
    assert wrong.startswith("Could not find a valid recipe for ItemTagWithCount(")
    assert "item_id='minecraft:oak_plank'), count=4)" in wrong
    assert surplus == wrong
    assert ready == "Crafted 4 minecraft:oak_plank"


def test_what_is_possible_follows_what_is_carried() -> None:
    crafting = Crafting(BOOK)
    assert crafting.possible(BOOK.recipes) == []
    crafting.act("get 1 elm log")
    assert crafting.possible(BOOK.recipes) == ["craft 4 elm plank using 1 elm log"]
    crafting.act("craft 4 elm plank using 1 elm log")
    assert crafting.possible(BOOK.recipes) == ["craft 4 stick using 2 elm plank"]


def test_depths_count_crafts_one_upon_another() -> None:
    assert [BOOK.depths[item_id(name)] for name in ("coal", "oak plank", "planks", "stick", "torch")] == [0, 1, 1, 2, 3]


def test_what_needs_itself_has_no_depth() -> None:
    circle = RecipeBook([Recipe(item_id("egg"), 1, (part("hen", 1),)), Recipe(item_id("hen"), 1, (part("egg", 1),))])
    assert circle.depths == {}
