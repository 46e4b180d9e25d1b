"""The interfaces of environments, experts and task suites, and helpers that suites share.

The step interface is Gymnasium's: reset and step return the usual two and five values, with text as observations and
actions. Group-based training also needs *tasks*: all rollouts of a group start from the same initial state, so a task
can make any number of identical environments.
"""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, overload

from pydantic import Field

from hgpo.options import converted_option
from hgpo.utils.text import counted

logger = logging.getLogger(__name__)

Info = Mapping[str, Any]
StepResult = tuple[str, float, bool, bool, Info]
"""(observation, reward, terminated, truncated, info), as in Gymnasium."""
Element = TypeVar("Element")


class Env(Protocol):
    """One environment with one episode at a time.

    Keys of `info` that the project reads (all optional except `won`):
    `won` (bool), `admissible_commands` (list of str), `task` (str, the sentence that states the goal),
    `score` (float in 0-1, if success is graded), `tools` (list of dict, see `hgpo.tool_calls`), `state_key` (str, the
    exact state, by which `rollout.state = "simulator"` compares steps; a policy never sees it). If computing the exact
    state is slow, the environment may have a method `state_key() -> str` instead, which is called only where it is
    needed.

    An optional method `identity() -> Mapping[str, Any]`, called after a reset, returns what manifests record of the
    task: `game` (SHA-256 of the game or shop), `price_bound`, `products` (number of products in the shop), and
    `observation`, a first observation without options.
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
        kind: the task type, such as `"pick_two_obj_and_place"`; success is also reported per type.
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
        """The next command. The episode's earlier commands need not be the expert's."""
        ...


class TaskSuite(Protocol):
    """A family of tasks with named splits; what `hgpo.envs.make` returns.

    A suite may also have `expert() -> Expert`, which a warm start needs, and `description`, a mapping that runs store
    with the options (such as a version). `skipped(split)` counts what a split leaves out, by reason: see `TaskSplits`.
    """

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the training split first."""
        ...

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        ...


class TaskSplits:
    """A suite whose splits are made on first use; one warning per split then lists the omitted records.

    Args:
        make: split -> function that makes its tasks, the training split first; each is called at most once.
        expert: makes an expert for demonstrations; None for a suite without one.
        description: what runs store with the options.
        skipped: split -> number of records left out, by reason; complete once the split is made.
    """

    def __init__(
        self,
        make: Mapping[str, Callable[[], Sequence[Task]]],
        *,
        expert: Callable[[], Expert | None] | None = None,
        description: Mapping[str, Any] | None = None,
        skipped: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self.description = dict(description or {})
        self._make = dict(make)
        self._made: dict[str, Sequence[Task]] = {}
        self._expert = expert
        self._skipped = skipped or {}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the training split first."""
        return tuple(self._make)

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        if split not in self._make:
            raise ValueError(f"unknown split {split!r}; this suite has {', '.join(self._make)}")
        if split not in self._made:
            self._made[split] = self._make[split]()
            left_out = counted_reasons(self._skipped.get(split, {}))
            if left_out:
                tasks = counted(len(self._made[split]), "task")
                logger.warning("split %r has %s; left out: %s", split, tasks, left_out)
        return self._made[split]

    def expert(self) -> Expert | None:
        """A new expert for demonstrations, or None."""
        return None if self._expert is None else self._expert()

    def skipped(self, split: str) -> Mapping[str, int]:
        """The number of games or other records of a split that are left out, by reason."""
        self.tasks(split)
        return self._skipped.get(split, {})


def check_action(action: object, running: bool) -> None:
    """Reject a step outside an episode, and an action that is not text; environments call it first in `step`.

    Raises:
        RuntimeError: no episode is running.
        TypeError: the action is not text.
    """
    if not running:
        raise RuntimeError("no episode is running; call reset() before step()")
    if not isinstance(action, str):
        raise TypeError(f"the action is of type {type(action).__name__}; actions are text")


def counted_reasons(reasons: Mapping[str, int]) -> str:
    """`{"sliced object": 2}` as `"2 sliced object"`."""
    return ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())


class MadeOnAccess(Sequence[Element]):
    """A sequence of `size` elements, each made on access by `_element` of a subclass."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> list[Element]: ...
    def __getitem__(self, index: int | slice) -> Element | list[Element]:
        numbers = range(self._size)[index]
        return self._element(numbers) if isinstance(numbers, int) else [self._element(number) for number in numbers]

    @abstractmethod
    def _element(self, number: int) -> Element:
        """Element `number`, counted from 0."""


SPLITS = ("train", "valid_seen", "valid_unseen")
"""The splits of generated games: held out are other games of the same kind, and games of other kinds."""
LARGEST_SEED = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=10**9)]
"""The type of an option that counts things; larger counts are mistakes and would exhaust the memory."""
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
"""The type of an option for a seed."""


def named_size(
    size: str | Mapping[str, Any] | Element, sizes: Mapping[str, Element], missing: Mapping[str, Any] | None = None
) -> Element:
    """A size by its name in `sizes`, or by its numbers with those of `missing` as defaults; a size itself is unchanged.

    Raises:
        ValueError: an unknown name or a wrong number.
    """
    kind = type(next(iter(sizes.values())))
    if isinstance(size, kind):
        return size
    if isinstance(size, Mapping):
        found: Element = converted_option("size", {**(missing or {}), **size}, kind)
        return found
    if size not in sizes:
        raise ValueError(f"unknown size {size!r}; choose one of {', '.join(map(str, sizes))}, or give its numbers")
    return sizes[str(size)]


def check_whole_number(name: str, value: object, most: int = 10**9) -> None:
    """Reject, with a `ValueError`, anything but an integer (no bool) from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) <= most:
        raise ValueError(f"{name} = {value!r}; give a whole number from 0 to {most}")


def check_task_types(task_types: Sequence[str], known: Collection[str]) -> None:
    """Reject unknown or repeated types, and an empty list, with a `ValueError`."""
    if not task_types or len(set(task_types)) < len(task_types) or not set(task_types) <= set(known):
        raise ValueError(f"task_types={list(task_types)}; give one or more of {', '.join(known)}, each once")


def expanded_path(path: str | Path) -> Path:
    """A path with `~` and `$VARIABLES` expanded; `FileNotFoundError` for a variable that is not set."""
    text = os.path.expanduser(os.path.expandvars(str(path)))
    if "$" in text:
        raise FileNotFoundError(f"{str(path)!r} contains a variable that is not set; export it, or write the path")
    return Path(text)
