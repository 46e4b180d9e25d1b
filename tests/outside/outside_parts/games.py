"""Household games with a template of their own; where asked, one game takes its whole environment worker down, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hgpo.agents import AgentContext
from hgpo.agents.prompts import TEMPLATES, HouseholdCompactTemplate
from hgpo.envs.alfworld import alfworld_suite
from hgpo.envs.base import Env, Expert, Info, StepResult, Task, TaskSplits

FATAL_STEP = 3


class MortalEnv:
    """Ends its process in the middle of an episode, unless that has happened in this run."""

    def __init__(self, task: Task, tombstone: Path) -> None:
        self._environment: Env = task.make()
        self._tombstone = tombstone
        self._steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[str, Info]:
        self._steps = 0
        return self._environment.reset(seed=seed)

    def step(self, action: str) -> StepResult:
        self._steps += 1
        if self._steps == FATAL_STEP and _is_environment_worker() and not self._tombstone.exists():
            self._tombstone.touch()
            os._exit(9)
        return self._environment.step(action)


@dataclass(frozen=True)
class MortalSuite:
    suite: TaskSplits
    tombstone: Path | None

    @property
    def splits(self) -> tuple[str, ...]:
        return self.suite.splits

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = self.suite.tasks(split)
        if split != "train" or self.tombstone is None:
            return tasks
        return [replace(task, make=partial(MortalEnv, task, self.tombstone)) for task in tasks]

    def expert(self) -> Expert | None:
        return self.suite.expert()


def mortal_games(tombstone: str | None = None, **options: Any) -> MortalSuite:
    """`tombstone` is the file that says that a worker has died; without one, all live."""
    return MortalSuite(alfworld_suite(**options), None if tombstone is None else Path(tombstone))


class TerseTemplate(HouseholdCompactTemplate):
    """Says `goal` where the household template says `task`."""

    def head(self, context: AgentContext) -> list[str]:
        [task, *rest] = super().head(context)
        return [task.replace("task :", "goal :", 1), *rest]


TEMPLATES.register("terse", TerseTemplate())


def _is_environment_worker() -> bool:
    """Whether this is an environment worker, and not the process that collects demonstrations."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.endswith("env_worker")
