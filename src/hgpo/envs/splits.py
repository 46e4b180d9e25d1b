"""The splits of a suite by name and the tasks of one by number, each made when asked for: what suites here share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, overload

from hgpo.envs.base import Task

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
