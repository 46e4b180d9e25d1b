"""Minecraft's recipe files: written here in their form, and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgpo_textcraft.recipe_book import find_recipes, item_id, read_book

SHAPED: dict[str, Any] = {
    "type": "minecraft:crafting_shaped",
    "pattern": ["##", " #"],
    "key": {"#": [{"tag": "minecraft:planks"}, {"item": "minecraft:bone"}]},
    "result": {"item": "minecraft:stairs", "count": 4},
}
PLANKS: dict[str, Any] = {
    "type": "minecraft:crafting_shapeless",
    "group": "planks",
    "ingredients": [{"item": "minecraft:log"}, {"item": "minecraft:log"}, {"tag": "minecraft:glue"}],
    "result": {"item": "minecraft:oak_planks"},
}
SMELTED: dict[str, Any] = {"type": "minecraft:smelting", "result": "minecraft:glass"}


def written(folder: Path, **files: dict[str, Any] | str) -> Path:
    recipes = folder / "recipes"
    recipes.mkdir()
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (recipes / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def test_shaped_and_shapeless_recipes_are_read(tmp_path: Path) -> None:
    book = read_book(find_recipes(written(tmp_path, stairs=SHAPED, planks=PLANKS, glass=SMELTED)))
    assert [recipe.text for recipe in book.recipes] == [
        "craft 1 oak planks using 2 log, 1 glue",
        "craft 4 stairs using 3 planks",
    ]
    assert book.members(item_id("planks")) == [item_id("oak_planks")]
    assert book.can_get(item_id("glue"))  # nothing makes one, so the group is an item
    assert not book.can_get(item_id("planks"))
    assert not book.can_get(item_id("oak_planks"))


def test_a_recipe_that_takes_back_what_it_made_is_left_out(tmp_path: Path) -> None:
    back = {"type": "minecraft:crafting_shapeless", "ingredients": [{"item": "minecraft:b"}], "result": "minecraft:a"}
    there = {"type": "minecraft:crafting_shapeless", "ingredients": [{"item": "minecraft:a"}], "result": "minecraft:b"}
    block = {
        "type": "minecraft:crafting_shapeless",
        "ingredients": [{"item": "minecraft:a_block"}],
        "result": "minecraft:c",
    }
    book = read_book(find_recipes(written(tmp_path, first=there, second=back, third=block)))
    assert [recipe.text for recipe in book.recipes] == ["craft 1 b using 1 a"]
    assert book.can_get(item_id("c"))


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"type": "minecraft:crafting_shaped"}', json.dumps({**SHAPED, "result": 3}), "[" * 9_000]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError, match=r"odd\.json: not a Minecraft recipe"):
        read_book(find_recipes(written(tmp_path, odd=content)))


def test_a_folder_without_recipes_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no recipe files"):
        find_recipes(tmp_path)
