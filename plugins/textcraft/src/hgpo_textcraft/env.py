"""TextCraft as an environment: text in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo_textcraft.crafting import Crafting
from hgpo_textcraft.recipes import Recipe, RecipeBook, shown

OBSERVATION_MODES = ("text", "inventory")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One task: a goal and the craft commands listed for it, needed ones and distractors in a random order.

    Attributes:
        goal: id of the item to craft.
        recipes: recipes whose commands are listed, in that order.
        groups: group -> its items, for the groups that these recipes use, by their displayed names.
    """

    goal: str
    recipes: tuple[Recipe, ...]
    groups: Mapping[str, tuple[str, ...]]

    @property
    def text(self) -> str:
        """The published first observation."""
        commands = "\n".join(recipe.text for recipe in self.recipes)
        return f"Crafting commands:\n{commands}\n\nGoal: craft {shown(self.goal)}."


class TextCraftEnv:
    """One goal in one world of recipes.

    Commands are `get 2 oak log`, `craft 4 oak planks using 1 oak log` and `inventory`; one that cannot be carried out
    changes nothing and is answered with the reason. The reward is 1 on the step that crafts the goal, which ends the
    episode; nothing else does.

    `observation_mode`: with "text" the answers are the published ones alone; with "inventory" each is followed by a
    line that says what is carried, so that an agent with a short memory sees the whole state.

    `info` has the same keys at reset and at each step: `won`, `task` (the craft commands and the goal),
    `admissible_commands` (what the shown recipes make of what is carried, the amounts that they take of what can be
    fetched, `inventory`; other amounts can be fetched, too), `inventory` (item -> count) and `groups` (group -> items).

    Example:
        >>> env = TextCraftEnv(book, challenge)  # doctest: +SKIP
        >>> observation, info = env.reset()  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("get 2 oak log")  # doctest: +SKIP
    """

    def __init__(self, book: RecipeBook, challenge: Challenge, observation_mode: str = "text") -> None:
        """Set up a task.

        Raises:
            ValueError: there is no such mode.
        """
        if observation_mode not in OBSERVATION_MODES:
            raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
        self._book, self._challenge, self._mode = book, challenge, observation_mode
        self._crafting = Crafting(book)
        self._running = False
        parts = {part for recipe in challenge.recipes for part in recipe.ingredients if book.can_get(part.id)}
        self._fetched = sorted(f"get {part.count} {shown(part.id)}" for part in parts)

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over with nothing. The game is deterministic, so every seed gives the same start."""
        self._crafting = Crafting(self._book)
        self._running = True
        return self._challenge.text, self._info(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command; `RuntimeError` before the first reset and after the end of an episode."""
        if not self._running:
            raise RuntimeError("no episode is running; call reset() before step()")
        observation = self._crafting.act(action)
        won = self._crafting.made == self._challenge.goal
        self._running = not won
        if self._mode == "inventory" and not action.startswith("inventory"):
            observation = f"{observation}\n{self._crafting.inventory_text().strip()}"
        return observation, float(won), won, False, self._info(won=won)

    def _info(self, *, won: bool) -> dict[str, Any]:
        possible = sorted(set(self._crafting.possible(list(self._challenge.recipes))))
        return {
            "won": won,
            "task": self._challenge.text,
            "admissible_commands": [*possible, *self._fetched, "inventory"],
            "inventory": {shown(item): count for item, count in self._crafting.inventory.items()},
            "groups": {group: list(items) for group, items in self._challenge.groups.items()},
        }


def draw_challenge(book: RecipeBook, goal: str, distractors: int, rng: np.random.Generator) -> Challenge:
    """The recipes that lead to a goal, and up to `distractors` others that use the same ingredients."""
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
    groups = {shown(group): tuple(map(shown, book.members(group))) for group in sorted(wanted)}
    return Challenge(goal, recipes, groups)


def _leading_to(book: RecipeBook, goal: str) -> list[Recipe]:
    """All recipes of the goal, of their ingredients, and so on; each text once."""
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
