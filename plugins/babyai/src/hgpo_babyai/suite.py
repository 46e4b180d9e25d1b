"""BabyAI as a task suite: levels by task type, splits by seed, and the bot as expert."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from minigrid.core.actions import Actions
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from hgpo.envs.base import SPLITS, Count, Seed, Task, TaskSplits, check_task_types
from hgpo_babyai.env import COMMANDS, BabyAIEnv, make_world

LEVELS: Mapping[str, tuple[str, str]] = {
    "go_to": ("GoToLocalS6N3", "GoToLocalS8N5"),
    "open": ("OpenDoorColor", "OpenDoorLoc"),
    "pick_up": ("PickupDist", "PickupLoc"),
    "put_next": ("PutNextLocalS5N3", "PutNextLocalS6N4"),
    "unlock": ("UnlockLocal", "UnlockLocalDist"),
}
"""Task type -> the level of `train` and `valid_seen`, and the level of `valid_unseen`."""
_SEEDS_OF_A_SPLIT = 10**9
_NAMES = {action: command for command, action in COMMANDS.items()}


def babyai_suite(
    *,
    task_types: tuple[str, ...] = tuple(LEVELS),
    train_games: Count = 16_000,
    valid_seen_games: Count = 256,
    valid_unseen_games: Count = 256,
    seed: Seed = 0,
) -> TaskSplits:
    """A suite of BabyAI's levels with the splits train, valid_seen and valid_unseen.

    `valid_seen` has other seeds than `train`; `valid_unseen` has other levels of the same task types.

    Args:
        task_types: keys of `LEVELS`; the tasks of a split have them in turn.
        train_games: number of games of the split; 0 omits it.
        valid_seen_games: the same.
        valid_unseen_games: the same.
        seed: of the games.

    Raises:
        ValueError: an option is wrong.
    """
    check_task_types(task_types, LEVELS)
    counts = dict(zip(SPLITS, (train_games, valid_seen_games, valid_unseen_games), strict=True))
    make = {name: partial(_tasks, name, count, task_types, seed) for name, count in counts.items() if count}
    description = {"task_types": list(task_types), "seed": seed, "games": counts}
    return TaskSplits(make, expert=BabyAIExpert, description=description)


def _tasks(split: str, count: int, task_types: tuple[str, ...], seed: int) -> list[Task]:
    first = (len(SPLITS) * seed + SPLITS.index(split)) * _SEEDS_OF_A_SPLIT
    tasks = []
    for number in range(count):
        kind = task_types[number % len(task_types)]
        level = LEVELS[kind][split == "valid_unseen"]
        tasks.append(Task(f"{split}/{number:05d}-{level}", kind, partial(BabyAIEnv, level, first + number)))
    return tasks


class BabyAIExpert:
    """minigrid's bot for BabyAI, in a game of its own that repeats the episode's commands.

    The bot plans with the game's state, limited to what was in view. Where it gives up, since a box was opened or it
    does not know the way, or has no command, the first admissible command is taken.
    """

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Start the same game."""
        session = info["session"]
        self._world = make_world(session["level"])
        self._world.reset(seed=session["seed"])
        self._bot = BabyAIBot(self._world)
        self._repeated = 0
        self._gave_up = False
        self._next = self._bot.replan()

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The bot's command after all commands of the episode, which may be another policy's."""
        for command in info["session"]["commands"][self._repeated :]:
            self._repeat(COMMANDS.get(command, Actions.done))
        return str(_NAMES.get(self._next, info["admissible_commands"][0]))

    def _repeat(self, action: Actions) -> None:
        self._repeated += 1
        self._world.step(action)
        if self._gave_up:
            return
        try:
            self._next = self._bot.replan(action)
        except (DisappearedBoxError, AssertionError):  # the second, for example, after another policy closed a door
            self._gave_up, self._next = True, Actions.done
