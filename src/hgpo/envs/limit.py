"""A step limit for any environment, so that an agent that never finishes still ends its episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hgpo.envs.base import Env, Expert, Info, StepResult, Task, TaskSuite


class LimitedEnv:
    """Sets ``truncated`` on step number ``max_steps`` of an episode unless it has terminated by then."""

    def __init__(self, environment: Env, max_steps: int) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {max_steps}")
        self._environment = environment
        self._max_steps = max_steps
        self._steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        """Start over and count from 0."""
        self._steps = 0
        return self._environment.reset(seed=seed)

    def step(self, action: str) -> StepResult:
        """One step of the environment below."""
        observation, reward, terminated, truncated, info = self._environment.step(action)
        self._steps += 1
        return observation, reward, terminated, truncated or (self._steps >= self._max_steps and not terminated), info


@dataclass(frozen=True, slots=True)
class LimitedSuite:
    """A suite whose environments all end after ``max_steps``."""

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
    return LimitedEnv(task.make(), max_steps)
