"""Environments that break their promises, at a moment and in a way that the options name.

`environment.name="torture.strangers:StrangeSuite"`, `environment.options='{place = "step", act = "exits"}'`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from corridor import Corridor, CorridorExpert, CorridorSuite
from corridor_runs import RECIPE
from hgpo.envs.base import Task
from torture.hostile import judged
from torture.invoking import invoke
from torture.outcomes import Outcome
from torture.words import hostile_value

PLACES = ("reset", "step", "expert", "tasks", "kind", "id")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this can be said")


def _raises(error: BaseException) -> Any:
    raise error


ACTS: dict[str, Callable[[Any], Any]] = {
    "exits": lambda honest: sys.exit(0),
    "exits with a text": lambda honest: sys.exit("\x1b[31mgone"),
    "raises": lambda honest: _raises(KeyError("\x1b]0;title\x07")),
    "raises the unspeakable": lambda honest: _raises(_Unspeakable()),
    "runs out of stack": lambda honest: ACTS["runs out of stack"](honest),
    "returns nothing": lambda honest: None,
    "returns a number": lambda honest: 5,
    "returns a text": lambda honest: "\x1b[2J[/x]",
    "returns too much": lambda honest: (*honest, 1) if isinstance(honest, tuple) else [honest],
}


def _replaced(honest: Any, rng: Random) -> Any:
    """One part of what is honest is something else."""
    if isinstance(honest, dict):
        name = rng.choice(sorted(honest))
        return {**honest, name: _replaced(honest[name], rng)}
    if isinstance(honest, tuple) and honest:
        place = rng.randrange(len(honest))
        return (*honest[:place], _replaced(honest[place], rng), *honest[place + 1 :])
    return hostile_value(rng)


@dataclass(frozen=True)
class StrangeSuite:
    """Corridors, until `after` calls of `place` were answered honestly."""

    place: str = "step"
    act: str = "replaces"
    after: int = 3
    seed: int = 0
    splits: tuple[str, ...] = CorridorSuite.splits

    def tasks(self, split: str) -> Sequence[Task]:
        honest = [
            Task(self._strange("id", task.id), self._strange("kind", task.kind), partial(_StrangeCorridor, self, task))
            for task in CorridorSuite().tasks(split)
        ]
        return self._strange("tasks", honest)  # type: ignore[no-any-return]

    def expert(self) -> CorridorExpert:
        return _StrangeExpert(self)

    def _strange(self, place: str, honest: Any, calls: int = 1 << 30) -> Any:
        if place != self.place or calls < self.after:
            return honest
        return _replaced(honest, Random(self.seed)) if self.act == "replaces" else ACTS[self.act](honest)


class _StrangeCorridor(Corridor):
    def __init__(self, suite: StrangeSuite, task: Task) -> None:
        super().__init__(task.make().goal)
        self._suite, self._calls = suite, 0

    def reset(self, *, seed: int | None = None) -> Any:
        return self._suite._strange("reset", super().reset(seed=seed))

    def step(self, action: str) -> Any:
        self._calls += 1
        return self._suite._strange("step", super().step(action), self._calls)


class _StrangeExpert(CorridorExpert):
    def __init__(self, suite: StrangeSuite) -> None:
        self._suite, self._calls = suite, 0

    def act(self, observation: str, info: dict[str, Any]) -> Any:
        self._calls += 1
        return self._suite._strange("expert", super().act(observation, info), self._calls)


def strangers(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One environment that breaks its promise, in a short training."""
    for number in range(1 << 30):
        act = rng.choice(["replaces"] * 8 + sorted(ACTS))
        options = {"place": rng.choice(PLACES), "act": act, "after": rng.randint(0, 6), "seed": rng.randrange(1 << 20)}
        said = ", ".join(f"{name} = {value!r}" for name, value in options.items()).replace("'", '"')
        words = [f"environment.options={{{said}}}", "environment.name=torture.strangers:StrangeSuite"]
        short = ["training.updates=1", "warm_start.max_updates=1", "run.directory='.'", f"run.name=s{number}"]
        folder.joinpath("runs").mkdir(exist_ok=True)
        invocation = invoke(["train", RECIPE, *words, *short, "--quiet"], folder / "runs")
        outcome = judged(f"environment with {said}", invocation)
        summary = (folder / "runs" / f"s{number}" / "summary.json").exists()
        if outcome.kind == "same" and not summary:
            outcome = Outcome("failed", outcome.case, "status 0 without a summary")
        yield outcome
