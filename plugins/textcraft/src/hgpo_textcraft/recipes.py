"""Recipes, and a book of them: what can be fetched, what is made of what, and how deep a goal lies.

An id is a name as Minecraft writes it, `minecraft:oak_planks`; `shown` is how it is told to a player. A *group* (a tag
in Minecraft) stands for several items: a recipe that wants `planks` takes oak planks or birch planks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NAMESPACE = "minecraft:"


def shown(item: str) -> str:
    """How an id is told. Example: `shown("minecraft:oak_planks") == "oak planks"`."""
    return item.replace(NAMESPACE, "").replace("_", " ")


def item_id(text: str) -> str:
    """The id that a player's words name. Example: `item_id("oak planks") == "minecraft:oak_planks"`."""
    return NAMESPACE + text.replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A number of one item, or of any item of a group.

    Attributes:
        id: of the item or group.
        count: how many.
        is_group: whether `id` names a group.
    """

    id: str
    count: int
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a craft command makes of what.

    Attributes:
        item: what it makes.
        count: how many.
        ingredients: what it takes.
        group: the group that `item` belongs to, if any.
    """

    item: str
    count: int
    ingredients: tuple[Ingredient, ...]
    group: str | None = None

    @property
    def text(self) -> str:
        """The command as it is told, such as "craft 4 stick using 2 planks"."""
        return craft_command(self, [part.id for part in self.ingredients])


def craft_command(recipe: Recipe, items: Iterable[str]) -> str:
    """The command for a recipe with `items` as its ingredients, in their order."""
    parts = [f"{part.count} {shown(item)}" for part, item in zip(recipe.ingredients, items, strict=True)]
    return f"craft {recipe.count} {shown(recipe.item)} using {', '.join(parts)}"


class RecipeBook:
    """All recipes of one world.

    Attributes:
        by_item: item -> its recipes, in the order given.
        by_group: group -> the recipes of its items.
        groups: ids that stand for several items and cannot be held.
        group_of: item -> its group.
    """

    def __init__(
        self,
        recipes: Iterable[Recipe],
        *,
        items: Iterable[str] = (),
        groups: Iterable[str] = (),
        group_of: Mapping[str, str] | None = None,
    ) -> None:
        """Sort recipes by what they make.

        Args:
            recipes: in the order in which they are tried.
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
        """Whether the world has it, so that it need not be crafted."""
        return item in self._items and item not in self.groups and not self.recipes_for(item)

    def recipes_for(self, id: str) -> list[Recipe]:
        """The recipes of an item, or of the items of a group; none where it is fetched."""
        return self.by_item.get(id) or self.by_group.get(id) or []

    def members(self, group: str) -> list[str]:
        """The items of a group, each once."""
        return [item for item, its_group in self.group_of.items() if its_group == group]

    def matching(self, item: str, given: Iterable[Ingredient]) -> Recipe | None:
        """The first recipe of `item` that takes exactly what is given, in any order."""
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
        """id -> how many crafts lie one upon another at least; 0 is fetched. What cannot be made is not in it."""
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
