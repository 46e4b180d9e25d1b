"""Wrappers around suites, experts and environments: a step limit, and the checks of `hgpo.envs.env_checker`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from hgpo.envs.base import Env, Expert, Info, MadeOnAccess, StepResult, Task, TaskSuite, counted_reasons
from hgpo.envs.env_checker import EnvContractError, check_start, check_step, check_task, is_texts, wrapped_error
from hgpo.plugins import BREAKS
from hgpo.utils.text import safe_repr


@contextmanager
def _named(what: str, call: str, passed_on: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """In the context, errors of the user's code become an `EnvContractError` that names the part and the call."""
    try:
        yield
    except passed_on:
        raise
    except BREAKS as error:
        raise wrapped_error(what, call, error, below=__file__) from error


class LimitedEnv:
    """Sets `truncated` at step `max_steps` of an episode; errors of the environment become `EnvContractError`.

    No step is both terminated and truncated: a time limit cuts no episode that ends. `name` is the task's id, for error
    messages.
    """

    def __init__(self, environment: Env, max_steps: int, name: str = "") -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, not {max_steps}")
        self._environment = environment
        self._max_steps = max_steps
        self._name = name
        self._steps = 0

    @property
    def unwrapped(self) -> Env:
        """The wrapped environment, as in Gymnasium."""
        return self._environment

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        """Start a new episode."""
        self._steps = 0
        with _named(f"task {self._name!r}", "reset()"):
            start = self._environment.reset(seed=seed)
        observation, info = check_start(self._name, start)
        return observation, self._with_state(info)

    def step(self, action: str) -> StepResult:
        """One step of the wrapped environment."""
        try:  # without `_named`, since a step may take only microseconds
            result = self._environment.step(action)
        except BREAKS as error:
            raise wrapped_error(f"task {self._name!r}", f"step({action!r})", error, below=__file__) from error
        self._steps += 1
        observation, reward, terminated, truncated, info = check_step(self._name, self._steps, result)
        truncated = not terminated and (truncated or self._steps >= self._max_steps)
        return observation, reward, terminated, truncated, self._with_state(info)

    def _with_state(self, info: Info) -> Info:
        """The info with a function for the exact state, if the environment has one; see `exact_state`."""
        return {**info, "state_key": self._state_key} if hasattr(self._environment, "state_key") else info

    def _state_key(self) -> str:
        with _named(f"task {self._name!r}", "state_key()"):
            key = self._environment.state_key()  # type: ignore[attr-defined]
        if not isinstance(key, str):
            raise EnvContractError(
                f"task {self._name!r}: state_key() has to return text, and returned {safe_repr(key)}"
            )
        return key


class CheckedExpert:
    """Checks the errors and commands of an expert."""

    def __init__(self, expert: Expert) -> None:
        self._expert = expert

    def reset(self, observation: str, info: Info) -> None:
        """Start an episode."""
        with _named("the expert", "reset()"):
            self._expert.reset(observation, info)

    def act(self, observation: str, info: Info) -> str:
        """The next command."""
        with _named("the expert", "act()"):
            command: object = self._expert.act(observation, info)
        if not isinstance(command, str):
            raise EnvContractError(
                f"the expert's act() has to return a command as text, and returned {safe_repr(command)}"
            )
        return command


@dataclass(frozen=True, slots=True)
class LimitedSuite:
    """Limits the episodes of a suite to `max_steps` steps and checks what the suite returns."""

    suite: TaskSuite
    max_steps: int

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the suite.

        Raises:
            EnvContractError: the suite's `splits` is not a list of strings.
        """
        with self._named("splits"):
            splits = self.suite.splits
        if not is_texts(splits):
            raise EnvContractError(f"the suite's `splits` must be a list of strings, got {safe_repr(splits)}")
        return tuple(splits)

    @property
    def description(self) -> Mapping[str, Any]:
        """The description of the suite, empty if it has none."""
        with self._named("description"):
            return dict(getattr(self.suite, "description", {}))

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of the split; their environments are checked and end an episode after `max_steps` steps.

        Raises:
            EnvContractError: the suite's `tasks` failed, or did not return a sequence.
            ValueError: the split is unknown or has no tasks; the message counts the tasks left out, by reason.
        """
        with self._named(f"tasks({split!r})"):
            tasks = self.suite.tasks(split)
        if isinstance(tasks, str | Mapping) or not (hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")):
            raise EnvContractError(
                f"the suite's tasks({split!r}) has to be a sequence of tasks, and is {safe_repr(tasks)}"
            )
        if not len(tasks):
            skipped = getattr(self.suite, "skipped", None)
            left_out = "" if skipped is None else counted_reasons(skipped(split))
            raise ValueError(f"split {split!r} has no tasks{f'; left out: {left_out}' if left_out else ''}")
        return _LimitedTasks(tasks, self.max_steps)

    def expert(self) -> Expert | None:
        """The expert of the suite, or None if it has none."""
        make = getattr(self.suite, "expert", None)
        with self._named("expert()"):
            expert = None if make is None else make()
        return None if expert is None else CheckedExpert(expert)

    def _named(self, call: str) -> AbstractContextManager[None]:
        """A `ValueError`, such as for an unknown split, is passed on: it is the suite's message for the user."""
        return _named("the suite", call, passed_on=(ValueError,))


class _LimitedTasks(MadeOnAccess[Task]):
    """Wraps tasks on access, so that a split of a million tasks costs nothing."""

    def __init__(self, tasks: Sequence[Task], max_steps: int) -> None:
        super().__init__(len(tasks))
        self._tasks, self._max_steps = tasks, max_steps

    def _element(self, number: int) -> Task:
        task = check_task(self._tasks[number])
        return Task(task.id, task.kind, partial(_make_limited, task, self._max_steps))


def _make_limited(task: Task, max_steps: int) -> LimitedEnv:
    with _named(f"task {task.id!r}", "making it"):
        environment = task.make()
    return LimitedEnv(environment, max_steps, task.id)
