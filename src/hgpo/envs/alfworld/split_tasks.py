"""The tasks of one split, and how many of its games are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from hgpo.envs.alfworld.env import AlfworldEnv
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.base import Task

UNSOLVABLE = "not marked solvable"


@dataclass(frozen=True, slots=True)
class SplitTasks:
    """The tasks of a split.

    Attributes:
        tasks: in a fixed order.
        skipped: reason -> how many games were left out for it.
    """

    tasks: tuple[Task, ...]
    skipped: Mapping[str, int]


def tasks_of_games(split: str, games: Iterable[Game], task_types: Collection[str] = TASK_TYPES) -> SplitTasks:
    """The solvable ones of some games, in their order; a task's id is `<split>/<number>-<name>`."""
    tasks: list[Task] = []
    skipped: Counter[str] = Counter()
    for number, game in enumerate(games):
        if not game.solvable:
            skipped[UNSOLVABLE] += 1
        elif game.goal.task_type in task_types:
            name = f"{split}/{number:04d}-{game.name}"
            tasks.append(Task(name, game.goal.task_type, partial(AlfworldEnv, game)))
    return SplitTasks(tuple(tasks), skipped)
