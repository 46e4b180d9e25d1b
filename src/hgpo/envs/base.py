"""What an environment is: text in, text out, and a suite of tasks that hands out fresh copies of the same start.

The step interface is Gymnasium's (reset and step return the usual two and five values). What group-based
training needs beyond it is the *task*: N rollouts of one group must start from the same initial state, so a suite
gives for each task a way to build as many identical environments as a group has rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
