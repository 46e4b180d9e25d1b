"""What an environment is: text in, text out, and a suite of tasks that hands out fresh copies of the same start.

The step interface is Gymnasium's (reset and step return the usual two and five values). What group-based
training needs beyond it is the *task*: N rollouts of one group must start from the same initial state, so a suite
gives for each task a way to build as many identical environments as a group has rollouts.
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
    """One live environment.

    Keys that the rest of the project understands in `info` (all optional but `won`):
    `won` (bool), `admissible_commands` (list of str), `task` (str, the sentence that states the goal),
    `score` (float in 0-1, where success is graded).
    """

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        """Start over; the same seed gives the same start."""
        ...

    def step(self, action: str) -> StepResult:
        """Carry out one action. After the end of an episode it raises `RuntimeError`."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """One start state of a suite.

    Attributes:
        id: unique in its suite; metrics and stored steps name the task by it.
        kind: the type by which success is also reported, such as `"pick_two_obj_and_place"`.
        make: builds the environment, any number of times.
    """

    id: str
    kind: str
    make: Callable[[], Env]


class Expert(Protocol):
    """Solves an environment from what it observes, for demonstrations."""

    def reset(self, observation: str, info: Info) -> None:
        """Start a game."""
        ...

    def act(self, observation: str, info: Info) -> str:
        """The next command, given the answer to the last one, whoever chose that."""
        ...


class TaskSuite(Protocol):
    """A family of tasks with named splits; what `hgpo.envs.make` returns.

    A suite that knows how its tasks are solved also has `expert() -> Expert`; a warm start needs one. One that has
    more to say of itself than its options (a version, a tagger) has `description`, a mapping that runs record.
    """

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the training split first."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        ...


# The splits of a suite by name and the tasks of one by number, each made when asked for: what suites here share.


Made = TypeVar("Made")


class Splits(Generic[Made]):
    """Whatever a suite keeps of each of its splits.

    Args:
        make: Split -> what makes it, the training split first; called once at most.
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
    """The tasks of a split, each made when it is asked for. A subclass says in `_task` how.

    Args:
        size: how many there are.
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
        """The task of a number from 0 on."""


class TaskSplits(Splits[Sequence[Task]]):
    """A suite that keeps no more than the tasks."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        return self._split(split)


# Checks of the options that recipes and `--option` hand to an environment.
#
# TOML and the command line bring any type, so a factory checks before it computes: what is wrong is a `ValueError`
# with
# the option's name, its value and what is allowed. None stands for an option that was left out.


MOST = 10**9
"""A count above it is a slip of the keyboard, and would fill the memory before anything else is said."""

LARGEST_SEED = 2**63 - 1


def check_whole_number(name: str, value: object, least: int | None = 0, most: int = MOST) -> None:
    """Refuse anything but a whole number of at least `least`, which may be None; a bool is no number here."""
    if value is None:
        return
    whole = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if whole is None or (least is not None and whole < least):
        raise ValueError(f"{name} = {value!r}; give a whole number{'' if least is None else f', {least} or more'}")
    if whole > most:
        raise ValueError(f"{name} = {value!r}; give a whole number of at most {most}")


def check_counts(name: str, value: object, example: str) -> None:
    """Refuse anything but a mapping of names to whole numbers from 0 on."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {value!r}; give a table, e.g. {example}")
    for key, count in value.items():
        check_whole_number(f"{name}.{key}", count)


def check_path(name: str, value: object) -> None:
    """Refuse anything but a path."""
    if value is not None and not isinstance(value, str | PathLike):
        raise ValueError(f"{name} = {value!r}; give a path")


def check_type(name: str, value: object, allowed: tuple[type, ...], wanted: str) -> None:
    """Refuse what is of none of the allowed types; `wanted` says in words what is."""
    if value is not None and not isinstance(value, allowed):
        raise ValueError(f"{name} = {value!r}; give {wanted}")
