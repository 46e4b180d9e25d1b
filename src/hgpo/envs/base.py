"""The interfaces of environments, experts and task suites, and helpers that suites share.

The step interface is Gymnasium's: reset and step return the usual two and five values, with text as observations and
actions. Group-based training also needs *tasks*: all rollouts of a group start from the same initial state, so a task
can make any number of identical environments.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from typing import Any, Generic, Protocol, TypeVar, overload

Info = Mapping[str, Any]
StepResult = tuple[str, float, bool, bool, Info]
"""(observation, reward, terminated, truncated, info), as in Gymnasium."""


class Env(Protocol):
    """One environment with one episode at a time.

    Keys of `info` that the project reads (all optional except `won`):
    `won` (bool), `admissible_commands` (list of str), `task` (str, the sentence that states the goal),
    `score` (float in 0-1, if success is graded).
    """

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        """Start a new episode; the same seed gives the same start."""
        ...

    def step(self, action: str) -> StepResult:
        """Apply one action; `RuntimeError` after the end of an episode."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """One initial state of a suite.

    Attributes:
        id: unique in its suite; metrics and stored steps name the task by it.
        kind: the type by which success is also reported, such as `"pick_two_obj_and_place"`.
        make: returns a new environment.
    """

    id: str
    kind: str
    make: Callable[[], Env]


class Expert(Protocol):
    """Solves tasks from observations, for demonstrations."""

    def reset(self, observation: str, info: Info) -> None:
        """Start an episode."""
        ...

    def act(self, observation: str, info: Info) -> str:
        """The next command; previous commands may differ from the expert's."""
        ...


class TaskSuite(Protocol):
    """A family of tasks with named splits; what `hgpo.envs.make` returns.

    A suite may also have `expert() -> Expert`, which a warm start needs, and `description`, a mapping that runs store
    with the options (such as a version).
    """

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the training split first."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        ...


Made = TypeVar("Made")


class Splits(Generic[Made]):
    """The splits of a suite, each made on first use.

    Args:
        make: split -> function that makes it, the training split first; called once at most.
    """

    def __init__(self, make: Mapping[str, Callable[[], Made]]) -> None:
        self._make = dict(make)
        self._made: dict[str, Made] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the training split first."""
        return tuple(self._make)

    def _split(self, split: str) -> Made:
        if split not in self._make:
            raise ValueError(f"unknown split {split!r}; this suite has {', '.join(self._make)}")
        if split not in self._made:
            self._made[split] = self._make[split]()
        return self._made[split]


class TasksByNumber(Sequence[Task]):
    """The tasks of a split, each made on access by `_task` of a subclass.

    Args:
        size: number of tasks.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        numbers = range(self._size)[index]
        return self._task(numbers) if isinstance(numbers, int) else [self._task(number) for number in numbers]

    @abstractmethod
    def _task(self, number: int) -> Task:
        """The task of a number, from 0."""


class TaskSplits(Splits[Sequence[Task]]):
    """A suite whose splits are sequences of tasks."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        return self._split(split)


# Checks of options from recipes and the command line, where values have any type. They raise a `ValueError` with the
# option's name, its value and the allowed values. None is an option that was left out.


MOST = 10**9
"""Larger counts are mistakes and would exhaust the memory."""

LARGEST_SEED = 2**63 - 1


def check_whole_number(name: str, value: object, least: int | None = 0, most: int = MOST) -> None:
    """Reject anything but an integer (no bool) from `least` to `most`; `least` None: no lower limit."""
    if value is None:
        return
    whole = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if whole is None or (least is not None and whole < least):
        raise ValueError(f"{name} = {value!r}; give a whole number{'' if least is None else f', {least} or more'}")
    if whole > most:
        raise ValueError(f"{name} = {value!r}; give a whole number of at most {most}")


def check_counts(name: str, value: object, example: str) -> None:
    """Reject anything but a mapping of names to integers from 0."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {value!r}; give a table, e.g. {example}")
    for key, count in value.items():
        check_whole_number(f"{name}.{key}", count)


def check_path(name: str, value: object) -> None:
    """Reject anything but a path."""
    if value is not None and not isinstance(value, str | PathLike):
        raise ValueError(f"{name} = {value!r}; give a path")


def check_type(name: str, value: object, allowed: tuple[type, ...], wanted: str) -> None:
    """Reject values of other types; `wanted` describes the allowed ones."""
    if value is not None and not isinstance(value, allowed):
        raise ValueError(f"{name} = {value!r}; give {wanted}")
