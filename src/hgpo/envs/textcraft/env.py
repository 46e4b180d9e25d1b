"""TextCraft as an environment: text in, text out."""

from __future__ import annotations

from typing import Any

from hgpo.envs.textcraft.challenge import Challenge
from hgpo.envs.textcraft.crafting import Crafting
from hgpo.envs.textcraft.recipes import RecipeBook, shown

OBSERVATION_MODES = ("text", "inventory")


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
