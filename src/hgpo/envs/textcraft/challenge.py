"""One task: a goal and the craft commands that are shown for it, needed ones and distractors in a drawn order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hgpo.envs.textcraft.recipes import Recipe, RecipeBook, shown


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a player is asked for.

    Attributes:
        goal: id of the item to craft.
        recipes: those whose commands are shown, in that order.
        groups: group -> its items, of the groups among these recipes; as told.
    """

    goal: str
    recipes: tuple[Recipe, ...]
    groups: Mapping[str, tuple[str, ...]]

    @property
    def text(self) -> str:
        """The published first observation."""
        commands = "\n".join(recipe.text for recipe in self.recipes)
        return f"Crafting commands:\n{commands}\n\nGoal: craft {shown(self.goal)}."


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
