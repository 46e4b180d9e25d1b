"""A step limit for any environment, so that an agent that never finishes still ends its episode.

Every episode, expert and task of a run passes here, so this is also the one place where their contract is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hgpo.envs.base import Env, Expert, Info, StepResult, Task, TaskSuite
from hgpo.envs.env_checker import (
    BREAKS,
    EnvContractError,
    check_command,
    check_start,
    check_step,
    check_task,
    fault_of,
    is_texts,
    safe_repr,
)


class LimitedEnv:
    """Sets `truncated` on step number `max_steps` of an episode unless it has terminated by then.

    `name` is the task's, for errors. Whatever goes wrong in the environment is an `EnvContractError`.
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
        except BREAKS as error:
            raise fault_of(f"task {self._name!r}", "reset()", error, below=__file__) from error
        return check_start(self._name, start)

    def step(self, action: str) -> StepResult:
        """One step of the environment below."""
        try:
            result = self._environment.step(action)
        except BREAKS as error:
            raise fault_of(f"task {self._name!r}", f"step({action!r})", error, below=__file__) from error
        self._steps += 1
        observation, reward, terminated, truncated, info = check_step(self._name, self._steps, result)
        return observation, reward, terminated, truncated or (self._steps >= self._max_steps and not terminated), info


class CheckedExpert:
    """An expert whose errors and answers are checked."""

    def __init__(self, expert: Expert) -> None:
        """Around a suite's own."""
        self._expert = expert

    def reset(self, observation: str, info: Info) -> None:
        """Start a game."""
        try:
            self._expert.reset(observation, info)
        except BREAKS as error:
            raise fault_of("the expert", "reset()", error, below=__file__) from error

    def act(self, observation: str, info: Info) -> str:
        """The next command."""
        try:
            command = self._expert.act(observation, info)
        except BREAKS as error:
            raise fault_of("the expert", "act()", error, below=__file__) from error
        return check_command(command)


@dataclass(frozen=True, slots=True)
class LimitedSuite:
    """A suite whose environments all end after `max_steps`, and whose contract is checked.

    Attributes:
        suite: the suite below.
        max_steps: of each episode.
    """

    suite: TaskSuite
    max_steps: int

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the suite below.

        Raises:
            EnvContractError: they are no list of texts.
        """
        splits = self._asked("splits", lambda: self.suite.splits)
        if not is_texts(splits):
            raise EnvContractError(f"the suite's `splits` has to be a list of texts, and is {safe_repr(splits)}")
        return tuple(splits)

    @property
    def description(self) -> Mapping[str, Any]:
        """What the suite below says of itself, nothing where it says nothing."""
        return dict(self._asked("description", lambda: getattr(self.suite, "description", {})))

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of the suite below, limited.

        Raises:
            EnvContractError: they are no sequence.
        """
        tasks = self._asked(f"tasks({split!r})", lambda: self.suite.tasks(split))
        if isinstance(tasks, str | Mapping) or not (hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")):
            raise EnvContractError(
                f"the suite's tasks({split!r}) has to be a sequence of tasks, and is {safe_repr(tasks)}"
            )
        return _LimitedTasks(tasks, self.max_steps)

    def expert(self) -> Expert | None:
        """A player that solves the suite below, or None where the suite has none."""
        make = getattr(self.suite, "expert", None)
        expert = None if make is None else self._asked("expert()", make)
        return None if expert is None else CheckedExpert(expert)

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        """What the suite answers. A `ValueError` of its own, such as an unknown split, is passed on as it is."""
        try:
            return ask()
        except ValueError:
            raise
        except BREAKS as error:
            raise fault_of("the suite", what, error, below=__file__) from error


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
        task = check_task(self._tasks[index])
        return replace(task, make=partial(_make_limited, task, self._max_steps))


def _make_limited(task: Task, max_steps: int) -> LimitedEnv:
    try:
        environment = task.make()
    except BREAKS as error:
        raise fault_of(f"task {task.id!r}", "making it", error, below=__file__) from error
    return LimitedEnv(environment, max_steps, task.id)
