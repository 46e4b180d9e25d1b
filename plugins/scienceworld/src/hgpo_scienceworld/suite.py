"""ScienceWorld as a task suite: the package's variations by task type and split, and its solutions as expert."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from itertools import zip_longest
from typing import Any

import numpy as np

from hgpo.envs.base import Count, Seed, Task, TaskSplits
from hgpo_scienceworld.env import ScienceWorldEnv
from hgpo_scienceworld.simulator import Keeper

VARIATIONS: Mapping[str, int] = json.loads(files(__package__).joinpath("variations.json").read_text(encoding="utf-8"))
"""Task type -> number of variations."""
SPLITS = ("train", "valid_seen", "valid_unseen")
SIMPLIFICATIONS = ("teleportAction", "noElectricalAction", "openDoors", "openContainers", "selfWateringFlowerPots")


class ScienceWorldSuite(TaskSplits):
    """The tasks of one or more splits. `scienceworld_suite` builds it."""

    def __init__(self, games: Mapping[str, list[tuple[str, int]]], options: Mapping[str, Any]) -> None:
        self._keeper, self.description = Keeper(), {**options, "package": "scienceworld 1.2.3"}
        self.close = self._keeper.close
        make = partial(ScienceWorldEnv, self._keeper, **options)
        super().__init__({split: partial(_tasks, split, chosen, make) for split, chosen in games.items()})

    def expert(self) -> ScienceWorldExpert:
        """An expert for demonstrations."""
        return ScienceWorldExpert(self._keeper)


def scienceworld_suite(
    *,
    task_types: tuple[str, ...] = tuple(VARIATIONS),
    simplifications: tuple[str, ...] = (),
    list_commands: bool = True,
    train_variations: Count = 100,
    valid_seen_variations: Count = 10,
    valid_unseen_variations: Count = 10,
    seed: Seed = 0,
) -> ScienceWorldSuite:
    """A suite of ScienceWorld's tasks; its splits are the package's variations for training, development and test.

    Args:
        task_types: keys of `VARIATIONS`; the tasks of a split have them in turn.
        simplifications: names of `SIMPLIFICATIONS`.
        list_commands: whether `info` has admissible commands, which take most of the time of a step.
        train_variations: most variations of a task type in the split; 0 omits it.
        valid_seen_variations: the same.
        valid_unseen_variations: the same.
        seed: of the choice and the order of variations.

    Raises:
        ValueError: an option is wrong.
    """
    for option, names, known in (
        ("task_types", task_types, VARIATIONS),
        ("simplifications", simplifications, SIMPLIFICATIONS),
    ):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{option}: unknown {', '.join(unknown)}; choose from {', '.join(known)}")
    electrical = [name for name in task_types if "power-component" in name or "conductivity" in name]
    if electrical and "noElectricalAction" in simplifications:
        raise ValueError(f"simplifications: with noElectricalAction there is no solution of {', '.join(electrical)}")
    most = zip(SPLITS, (train_variations, valid_seen_variations, valid_unseen_variations), strict=True)
    games = {split: _choose(split, number, task_types, seed) for split, number in most if number}
    return ScienceWorldSuite(games, {"simplifications": ",".join(simplifications), "list_commands": list_commands})


def _choose(split: str, most: int, task_types: tuple[str, ...], seed: int) -> list[tuple[str, int]]:
    """Task types in turn, each with its variations in random order.

    The package's `getSets` gives the first half to training, the third quarter to development, the rest to the test.
    """
    rng, place, chosen = np.random.default_rng((seed, SPLITS.index(split))), SPLITS.index(split), []
    for name in task_types:
        quarter = VARIATIONS[name] // 4
        first, end = ((0, 2 * quarter), (2 * quarter, 3 * quarter), (3 * quarter, VARIATIONS[name]))[place]
        chosen.append([(name, first + int(number)) for number in rng.permutation(end - first)[:most]])
    return [game for turn in zip_longest(*chosen) for game in turn if game]


def _tasks(split: str, games: list[tuple[str, int]], make: partial[ScienceWorldEnv]) -> list[Task]:
    return [Task(f"{split}/{name}-{number}", name, partial(make, name, number)) for name, number in games]


class ScienceWorldExpert:
    """Plays the package's solution command by command; it does not replan after commands of others."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Solve the task in a game of its own."""
        self._solution = self._keeper.session().load(*info["session"]["game"], solve=True)

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next command of the solution that the episode has not had; `wait1` after the last."""
        done = 0
        for command in info["session"]["commands"]:
            done += self._solution[done : done + 1] == [command]
        return (*self._solution, "wait1")[done]
