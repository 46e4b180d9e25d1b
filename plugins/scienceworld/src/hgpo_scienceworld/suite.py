"""ScienceWorld as a task suite: the package's variations by task type and split, and its solutions as expert."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from hgpo.envs.base import SPLITS, Count, Seed, Task, TaskSplits, check_task_types
from hgpo_scienceworld.env import ScienceWorldEnv
from hgpo_scienceworld.simulator import Simulator

VARIATIONS: Mapping[str, int] = json.loads(files(__package__).joinpath("variations.json").read_text(encoding="utf-8"))
"""Task type -> number of variations."""
Simplification = Literal[
    "teleportAction", "noElectricalAction", "openDoors", "openContainers", "selfWateringFlowerPots"
]


def scienceworld_suite(
    *,
    task_types: tuple[str, ...] = tuple(VARIATIONS),
    simplifications: tuple[Simplification, ...] = (),
    list_commands: bool = True,
    train_variations: Count = 100,
    valid_seen_variations: Count = 10,
    valid_unseen_variations: Count = 10,
    seed: Seed = 0,
) -> TaskSplits:
    """A suite of ScienceWorld's tasks; its splits are the package's variations for training, development and test.

    Args:
        task_types: keys of `VARIATIONS`; the tasks of a split have them in turn.
        simplifications: the package's simplifications of the task.
        list_commands: whether `info` has admissible commands, which take most of the time of a step.
        train_variations: most variations of a task type in the split; 0 omits it.
        valid_seen_variations: the same.
        valid_unseen_variations: the same.
        seed: of the choice and the order of variations.

    Raises:
        ValueError: an option is wrong.
    """
    check_task_types(task_types, VARIATIONS)
    electrical = [name for name in task_types if "power-component" in name or "conductivity" in name]
    if electrical and "noElectricalAction" in simplifications:
        raise ValueError(f"simplifications: with noElectricalAction there is no solution of {', '.join(electrical)}")
    options: dict[str, Any] = {"simplifications": ",".join(simplifications), "list_commands": list_commands}
    simulator = Simulator()
    environment = partial(ScienceWorldEnv, simulator, **options)
    most = zip(SPLITS, (train_variations, valid_seen_variations, valid_unseen_variations), strict=True)
    make = {split: partial(_tasks, split, number, task_types, seed, environment) for split, number in most if number}
    description = {**options, "package": "scienceworld 1.2.3"}
    return TaskSplits(make, expert=partial(ScienceWorldExpert, simulator), description=description)


def _tasks(split: str, most: int, task_types: tuple[str, ...], seed: int, make: partial[ScienceWorldEnv]) -> list[Task]:
    """Task types in turn, each with at most `most` of its variations in random order.

    The package's `getSets` gives the first half to training, the third quarter to development, the rest to the test.
    """
    place, chosen = SPLITS.index(split), []
    rng = np.random.default_rng((seed, place))
    for name in task_types:
        quarter = VARIATIONS[name] // 4
        first, end = ((0, 2 * quarter), (2 * quarter, 3 * quarter), (3 * quarter, VARIATIONS[name]))[place]
        numbers = (first + rng.permutation(end - first)[:most]).tolist()
        chosen.append([Task(f"{split}/{name}-{number}", name, partial(make, name, number)) for number in numbers])
    return [task for turn in zip_longest(*chosen) for task in turn if task]


class ScienceWorldExpert:
    """Plays the package's solution command by command; it does not replan after commands of others."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Solve the task in a game of its own."""
        self._solution = self._simulator.session().load(*info["session"]["game"], solve=True)

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next command of the solution that the episode has not had; `wait1` after the last."""
        done = 0
        for command in info["session"]["commands"]:
            done += self._solution[done : done + 1] == [command]
        return (*self._solution, "wait1")[done]
