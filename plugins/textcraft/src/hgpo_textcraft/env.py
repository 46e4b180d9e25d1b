"""The game in text: a task, an inventory with its three commands, and the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo.envs.base import check_action
from hgpo_textcraft.recipe_book import Ingredient, Recipe, RecipeBook, craft_command, display_name, item_id

OBSERVATION_MODES = ("text", "inventory")
_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]+) (.*)")
_COUNTED = re.compile(r"([0-9]+) (.*)")
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Challenge:
    """One task: a goal and the craft commands that its first observation lists.

    Attributes:
        goal: id of the item to craft.
        recipes: the recipes of the listed commands, in their order.
        groups: group -> its items, for the groups among these recipes, by display name.
    """

    goal: str
    recipes: tuple[Recipe, ...]
    groups: Mapping[str, tuple[str, ...]]

    @property
    def text(self) -> str:
        """The published first observation."""
        commands = "\n".join(recipe.text for recipe in self.recipes)
        return f"Crafting commands:\n{commands}\n\nGoal: craft {display_name(self.goal)}."


def draw_challenge(book: RecipeBook, goal: str, distractors: int, rng: np.random.Generator) -> Challenge:
    """All recipes that lead to a goal and up to `distractors` others that use the same ingredients, in random order."""
    needed = _leading_to(book, goal)
    used = {part.id for recipe in needed for part in recipe.ingredients}
    texts = {recipe.text for recipe in needed}
    others = []
    for recipe in book.recipes:
        if recipe.text not in texts and any(part.id in used for part in recipe.ingredients):
            others.append(recipe)
            texts.add(recipe.text)
    drawn = rng.choice(len(others), size=min(distractors, len(others)), replace=False) if others else ()
    listed = [*needed, *(others[number] for number in drawn)]
    recipes = tuple(listed[number] for number in rng.permutation(len(listed)))
    wanted = {part.id for recipe in recipes for part in recipe.ingredients if part.is_group}
    groups = {display_name(group): tuple(map(display_name, book.members(group))) for group in sorted(wanted)}
    return Challenge(goal, recipes, groups)


def _leading_to(book: RecipeBook, goal: str) -> list[Recipe]:
    """All recipes of the goal, of their ingredients, and so on; each command once."""
    found: dict[str, Recipe] = {}
    open_ids, seen = [goal], {goal}
    while open_ids:
        for recipe in book.recipes_for(open_ids.pop()):
            found.setdefault(recipe.text, recipe)
            for part in recipe.ingredients:
                if part.id not in seen:
                    seen.add(part.id)
                    open_ids.append(part.id)
    return list(found.values())


class _ActionFailed(Exception):
    """A command that cannot be carried out; the message is the answer."""


class Crafting:
    """An inventory and the three commands, with the answers of the package textcraft.

    Attributes:
        inventory: item id -> count, in the order in which the items came in.
        made: id of the item that the last command crafted, else None.
    """

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self.inventory: dict[str, int] = {}
        self.made: str | None = None

    def act(self, command: str) -> str:
        """Carry out one command and return the answer. A command that fails changes nothing."""
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
        """The answer to `inventory`; its blank at the end is that of the published text."""
        if not self.inventory:
            return "Inventory: You are not carrying anything."
        return "Inventory: " + "".join(f"[{display_name(item)}] ({count}) " for item, count in self.inventory.items())

    def possible(self, recipes: Iterable[Recipe]) -> list[str]:
        """The craft commands of `recipes` that the inventory suffices for, with an item in place of each group."""
        commands = []
        for recipe in recipes:
            items = [self._carried(part) for part in recipe.ingredients]
            if None not in items:
                commands.append(craft_command(recipe, [item for item in items if item is not None]))
        return commands

    def _carried(self, wanted: Ingredient) -> str | None:
        """An item of the inventory that suffices for an ingredient, else None."""
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
        if any(part.is_group or self.inventory.get(part.id, -1) < part.count for part in given):
            raise _ActionFailed(f"Could not find enough items to craft {None if is_group else item}")
        recipe = None if is_group else self._book.matching(item, given)
        if recipe is None:
            tag, name = (repr(item), None) if is_group else (None, repr(item))
            tagged = f"ItemTag(tag={tag}, item_id={name})"
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
        """The item, its count and the ingredients that a craft command names."""
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


class TextCraftEnv:
    """One task in one world of recipes.

    Commands are `get 2 oak log`, `craft 4 oak planks using 1 oak log` and `inventory`. A command that cannot be carried
    out changes nothing, and the answer gives the reason. The reward is 1 on the step that crafts the goal and 0 before.
    Only that step ends the episode.

    `observation_mode`: "text" gives the published answers; "inventory" adds a line with the inventory to each answer,
    so that an agent with a short memory sees the whole state.

    `info` has the same keys at reset and at each step: `won`; `task`, the craft commands and the goal;
    `admissible_commands`, the listed craft commands that the inventory suffices for, `get` with the amounts that the
    listed recipes take, and `inventory` (other amounts can be fetched as well); `inventory`, item -> count; `groups`,
    group -> items.

    Example:
        >>> env = TextCraftEnv(book, challenge)  # doctest: +SKIP
        >>> observation, info = env.reset()  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("get 2 oak log")  # doctest: +SKIP
    """

    def __init__(self, book: RecipeBook, challenge: Challenge, observation_mode: str = "text") -> None:
        """Set up a task.

        Args:
            book: the recipes of the world.
            challenge: the task.
            observation_mode: "text" or "inventory".

        Raises:
            ValueError: an unknown mode.
        """
        if observation_mode not in OBSERVATION_MODES:
            raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
        self._book, self._challenge, self._mode = book, challenge, observation_mode
        self._crafting = Crafting(book)
        self._running = False
        parts = {part for recipe in challenge.recipes for part in recipe.ingredients if book.can_get(part.id)}
        self._fetched = sorted(f"get {part.count} {display_name(part.id)}" for part in parts)

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over with an empty inventory. The game is deterministic: every seed gives the same start."""
        self._crafting = Crafting(self._book)
        self._running = True
        return self._challenge.text, self._info(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. Before the first reset and after the end of an episode it raises `RuntimeError`."""
        check_action(action, self._running)
        observation = self._crafting.act(action)
        won = self._crafting.made == self._challenge.goal
        self._running = not won
        if self._mode == "inventory" and not action.startswith("inventory"):
            observation = f"{observation}\n{self._crafting.inventory_text().strip()}"
        return observation, float(won), won, False, self._info(won=won)

    def _info(self, *, won: bool) -> dict[str, Any]:
        possible = sorted(set(self._crafting.possible(self._challenge.recipes)))
        return {
            "won": won,
            "task": self._challenge.text,
            "admissible_commands": [*possible, *self._fetched, "inventory"],
            "inventory": {display_name(item): count for item, count in self._crafting.inventory.items()},
            "groups": {group: list(items) for group, items in self._challenge.groups.items()},
        }
