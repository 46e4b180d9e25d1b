"""A step limit for any environment, so that an agent that never finishes still ends its episode.

Every episode passes here, so this is also where an environment is held to what `hgpo.envs.base.Env` promises: a
forgotten `won` would otherwise train to the end with a success of 0.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hgpo.envs.base import Env, Expert, Info, StepResult, Task, TaskSuite

_RESET_PROMISE = "reset(seed=…) has to return (observation, info)"
_STEP_PROMISE = "step(action) has to return (observation, reward, terminated, truncated, info)"


class EnvironmentFault(ValueError):
    """An environment raised an error or returned something else than promised; the message names the task."""


class LimitedEnv:
    """Sets `truncated` on step number `max_steps` of an episode unless it has terminated by then.

    `name` is the task's, for errors. Whatever goes wrong in the environment is an `EnvironmentFault`.
    """

    def __init__(self, environment: Env, max_steps: int, name: str = "") -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {max_steps}")
        self._environment = environment
        self._max_steps = max_steps
        self._name = name
        self._steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        """Start over and count from 0."""
        self._steps = 0
        try:
            start = self._environment.reset(seed=seed)
        except Exception as error:
            raise _fault_of(self._name, "reset()", error) from error
        try:
            observation, info = start
        except (TypeError, ValueError):
            self._refuse(_RESET_PROMISE, _brief(start))
        self._check(_RESET_PROMISE, observation, info)
        return observation, info

    def step(self, action: str) -> StepResult:
        """One step of the environment below."""
        try:
            result = self._environment.step(action)
        except Exception as error:
            raise _fault_of(self._name, f"step({action!r})", error) from error
        self._steps += 1
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            self._refuse(_STEP_PROMISE, _brief(result))
        # The exact types that environments return nearly always come first: a step of the native engine takes
        # microseconds, and this is done at each.
        if type(observation) is not str or type(info) is not dict or type(info.get("won")) is not bool:
            self._check(_STEP_PROMISE, observation, info)
        return observation, reward, terminated, truncated or (self._steps >= self._max_steps and not terminated), info

    def _check(self, promise: str, observation: object, info: object) -> None:
        if not isinstance(observation, str):
            self._refuse(f"{promise}, the observation a str", f"an observation of type {type(observation).__name__}")
        if not isinstance(info, Mapping):
            self._refuse(f"{promise}, info a dict", f"an info of type {type(info).__name__}")
        if "won" not in info:
            keys = ", ".join(map(str, info)) or "none"
            self._refuse(f"{promise}, with the bool info['won']", f"an info without 'won'; its keys: {keys}")
        if not isinstance(info["won"], bool | np.bool_):
            self._refuse(f"{promise}, with the bool info['won']", f"info['won'] = {info['won']!r}")

    def _refuse(self, promise: str, returned: str) -> NoReturn:
        raise EnvironmentFault(f"task {self._name!r}: {promise}; at step {self._steps} it returned {returned}")


def _brief(returned: object) -> str:
    """What came instead of the promised values, briefly: an observation may be long."""
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values ({', '.join(type(value).__name__ for value in returned)})"
    return f"a value of type {type(returned).__name__}"


def _fault_of(name: str, call: str, error: Exception) -> EnvironmentFault:
    """An error of the environment's own code, with the task's name and, where it is not the call itself, the place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    line = "" if place.filename == __file__ else f" ({Path(place.filename).name}, line {place.lineno})"
    return EnvironmentFault(f"task {name!r}: {call} raised {type(error).__name__}: {error}{line}")


@dataclass(frozen=True, slots=True)
class LimitedSuite:
    """A suite whose environments all end after `max_steps`."""

    suite: TaskSuite
    max_steps: int

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the suite below."""
        return self.suite.splits

    @property
    def description(self) -> Mapping[str, Any]:
        """What the suite below says of itself, nothing where it says nothing."""
        return dict(getattr(self.suite, "description", {}))

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of the suite below, limited."""
        return _LimitedTasks(self.suite.tasks(split), self.max_steps)

    def expert(self) -> Expert | None:
        """A player that solves the suite below, or None where the suite has none."""
        make = getattr(self.suite, "expert", None)
        return None if make is None else make()


class _LimitedTasks(Sequence[Task]):
    """Wraps a task when it is asked for, so that a split of a million tasks costs nothing until then."""

    def __init__(self, tasks: Sequence[Task], max_steps: int) -> None:
        self._tasks = tasks
        self._max_steps = max_steps

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return _LimitedTasks(self._tasks[index], self._max_steps)
        task = self._tasks[index]
        return replace(task, make=partial(_make_limited, task, self._max_steps))


def _make_limited(task: Task, max_steps: int) -> LimitedEnv:
    try:
        environment = task.make()
    except Exception as error:
        raise _fault_of(task.id, "making it", error) from error
    return LimitedEnv(environment, max_steps, task.id)
