"""A user's own environment, as docs/environments.md shows it: a corridor with a door at its end.

It is used by tests as a small real environment and as the example of one that registers from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hgpo.envs.base import Task

COMMANDS = ["go left", "go right", "open door"]


class Corridor:
    """Walk `goal` steps to the right, then open the door."""

    def __init__(self, goal: int) -> None:
        self.goal = goal
        self.place = 0

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.place = 0
        return self._look(), self._info(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        won = action == "open door" and self.place == self.goal
        self.place += {"go left": -1, "go right": 1}.get(action, 0)
        return self._look(), float(won), won, False, self._info(won)

    def _look(self) -> str:
        return f"you are at place {self.place}"

    def _info(self, won: bool) -> dict[str, Any]:
        return {"won": won, "task": f"open the door at place {self.goal}", "admissible_commands": COMMANDS}


@dataclass(frozen=True)
class CorridorSuite:
    """Corridors of length 1 to `longest`; the odd ones are for training."""

    longest: int = 6
    splits: tuple[str, ...] = ("train", "held_out")

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits:
            raise ValueError(f"unknown split {split!r}; the splits are {', '.join(self.splits)}")
        first = 1 if split == "train" else 2
        return [
            Task(f"{split}/{goal}", "corridor", partial(Corridor, goal)) for goal in range(first, self.longest + 1, 2)
        ]

    def expert(self) -> CorridorExpert:
        return CorridorExpert()


class CorridorExpert:
    """Reads where it is and where the door is, and walks there."""

    def reset(self, observation: str, info: dict[str, Any]) -> None:
        self._goal = int(info["task"].split()[-1])

    def act(self, observation: str, info: dict[str, Any]) -> str:
        place = int(observation.split()[-1])
        if place == self._goal:
            return "open door"
        return "go right" if place < self._goal else "go left"
