"""One client's session, without input or output: a message in, an answer out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hgpo.envs.base import Env, Info, Task, TaskSuite
from hgpo.envs.contract import EnvironmentFault
from hgpo.envs.openenv.messages import BadMessage, Json
from hgpo.envs.options import LARGEST_SEED

MOST_ID_CHARACTERS = 255
ACTION_FIELD = "text"


class Served:
    """The tasks that a server offers: the splits of a suite, their tasks in turn or by number."""

    def __init__(self, name: str, suite: TaskSuite, splits: Sequence[str]) -> None:
        """Look up the tasks of every split, which may generate them.

        Raises:
            ValueError: the suite has no such split.
        """
        self.name = name
        self._tasks: dict[str, Sequence[Task]] = {split: suite.tasks(split) for split in splits}
        if empty := [split for split, tasks in self._tasks.items() if not len(tasks)]:
            raise ValueError(f"{name}: the split {', '.join(empty)} has no tasks")
        self._turns = count()
        self._episodes = count()

    @property
    def sizes(self) -> dict[str, int]:
        """Split -> how many tasks it has."""
        return {split: len(tasks) for split, tasks in self._tasks.items()}

    def choose(self, wanted: Mapping[str, Any]) -> tuple[str, Task]:
        """The split and task that a reset asks for: by number, else by seed, else the next in turn.

        Raises:
            BadMessage: there is no such split or task.
        """
        split = wanted.get("split", next(iter(self._tasks)))
        if not isinstance(split, str) or split not in self._tasks:
            raise BadMessage("VALIDATION_ERROR", f"split: this server has {', '.join(self._tasks)}")
        tasks = self._tasks[split]
        number = wanted.get("task")
        if number is None:
            seed = wanted.get("seed")
            number = (next(self._turns) if seed is None else seed) % len(tasks)
        if not _is_whole(number) or not 0 <= number < len(tasks):
            raise BadMessage("VALIDATION_ERROR", f"task: split {split!r} has tasks 0 to {len(tasks) - 1}")
        return split, tasks[number]

    def episode_id(self) -> str:
        """A name for an episode that its client gave none."""
        return f"episode-{next(self._episodes)}"


@dataclass(slots=True)
class Session:
    """The session of one client. `answer` takes its messages in order.

    Attributes:
        served: where the session's tasks come from.
    """

    served: Served
    _environment: Env | None = None
    _running: bool = False
    _state: Json = field(default_factory=lambda: {"episode_id": None, "step_count": 0, "split": None, "task_id": None})

    def answer(self, message: Mapping[str, Any]) -> Json | None:
        """The answer to a message; None ends the session.

        Raises:
            BadMessage: it cannot be answered; the session goes on as it was.
        """
        kind, data = message.get("type"), message.get("data", {})
        if not isinstance(data, dict):
            raise BadMessage("VALIDATION_ERROR", "data: give an object")
        if kind == "reset":
            return self._reset(data)
        if kind == "step":
            return self._step(data)
        if kind == "state":
            whole = {**self._state, "environment": self.served.name, "splits": self.served.sizes}
            return {"type": "state", "data": whole}
        if kind == "close":
            return None
        raise BadMessage("UNKNOWN_TYPE", "a message's type is reset, step, state or close")

    def _reset(self, data: Json) -> Json:
        _refuse_others(data, ("seed", "episode_id", "split", "task"))
        seed, name = data.get("seed"), data.get("episode_id")
        if seed is not None and not (_is_whole(seed) and 0 <= seed <= LARGEST_SEED):
            raise BadMessage("VALIDATION_ERROR", "seed: give a whole number, 0 or more")
        if name is not None and not (isinstance(name, str) and len(name) <= MOST_ID_CHARACTERS):
            raise BadMessage("VALIDATION_ERROR", f"episode_id: give text of at most {MOST_ID_CHARACTERS} characters")
        split, task = self.served.choose(data)
        self._running = False
        try:
            self._environment = task.make()
            observation, info = self._environment.reset(seed=seed)
        except EnvironmentFault as error:
            raise BadMessage("EXECUTION_ERROR", str(error)) from error
        self._running = True
        self._state = {
            "episode_id": name or self.served.episode_id(),
            "step_count": 0,
            "split": split,
            "task_id": task.id,
        }
        return _observed(observation, None, info)

    def _step(self, data: Json) -> Json:
        _refuse_others(data, (ACTION_FIELD, "metadata"))
        action = data.get(ACTION_FIELD)
        if not isinstance(action, str):
            raise BadMessage("VALIDATION_ERROR", f"{ACTION_FIELD}: give the command as text")
        if self._environment is None or not self._running:
            raise BadMessage("EXECUTION_ERROR", "no episode is running; reset first")
        try:
            observation, reward, terminated, truncated, info = self._environment.step(action)
        except EnvironmentFault as error:
            self._running = False
            raise BadMessage("EXECUTION_ERROR", str(error)) from error
        self._running = not (terminated or truncated)
        self._state["step_count"] += 1
        return _observed(observation, float(reward), info, done=not self._running, truncated=bool(truncated))


def _observed(text: str, reward: float | None, info: Info, *, done: bool = False, truncated: bool = False) -> Json:
    """An answer with what `info` says beside the text."""
    observation = {**info, "won": bool(info["won"]), "truncated": truncated, "text": text}
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


def _refuse_others(data: Json, known: tuple[str, ...]) -> None:
    if unknown := sorted(set(data) - set(known)):
        raise BadMessage("VALIDATION_ERROR", f"{unknown[0][:80]!r} is not known here; known are {', '.join(known)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
