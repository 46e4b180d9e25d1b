"""A household game as an environment."""

from __future__ import annotations

from os import PathLike
from typing import Any

from hgpo.envs.alfworld.engine import Engine
from hgpo.envs.alfworld.game import Game
from hgpo.envs.alfworld.tw_pddl.reading import load_game


class AlfworldEnv:
    """One ALFWorld game, from a `game.tw-pddl` file or a `Game`.

    Observations, admissible commands and success are exactly those of the original simulator. A command that is not
    admissible changes nothing; its observation is "Nothing happens.". The reward is 1 on the winning
    step and 0 otherwise; without `max_steps` an episode ends only when the game is won.

    `info` has the same keys at reset and at each step: `admissible_commands` (sorted, `help` included), `won`,
    `task` (the sentence that states the goal) and `task_type`.

    Example:
        >>> env = AlfworldEnv("game.tw-pddl", max_steps=50)  # doctest: +SKIP
        >>> observation, info = env.reset()  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("go to desk 1")  # doctest: +SKIP
    """

    def __init__(self, game: Game | str | PathLike[str], max_steps: int | None = None) -> None:
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}; give a positive number, or None for no limit")
        self.game = game if isinstance(game, Game) else load_game(game)
        self.max_steps = max_steps
        self._engine = Engine(self.game)
        self._steps = 0
        self._running = False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. The game is deterministic, so every seed gives the same start."""
        self._steps = 0
        self._running = True
        return self._engine.start(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply one command; `RuntimeError` before the first reset and after the end of an episode."""
        if not self._running:
            raise RuntimeError(f"{self.game.name}: no episode is running; call reset() before step()")
        observation = self._engine.act(action)
        self._steps += 1
        won = self._engine.won
        truncated = not won and self.max_steps is not None and self._steps >= self.max_steps
        self._running = not (won or truncated)
        return observation, 1.0 if won else 0.0, won, truncated, self._info()

    def _info(self) -> dict[str, Any]:
        return {
            "admissible_commands": self._engine.commands.copy(),
            "won": self._engine.won,
            "task": self.game.task,
            "task_type": self.game.goal.task_type,
        }
