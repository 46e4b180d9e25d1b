"""Held-out success: a fixed panel of tasks, each played exactly once per seed.

The interval is over tasks, the unit that generalises: with one seed it is Wilson's, with several it is the normal
interval of the per-task means (clustered by task, so that playing a task three times does not count as three tasks).
A difference of two evaluations has the interval that these two give together (`gain`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hgpo.envs.base import Task
from hgpo.policies.base import AnyPolicy
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import PlayedGame, StepRecord, played_episodes
from hgpo.rollout.runner import OnStep, collect

NORMAL_95 = 1.959963984540054
EVALUATED_TOGETHER = 256
"""Games that are under way at a time."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean over tasks with its 95 % interval."""

    mean: float
    low: float
    high: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a panel showed. Fractions are 0-1; `by_seed` holds one success per seed, in the order of `seeds`."""

    split: str
    temperature: float
    seeds: tuple[int, ...]
    success: Rate
    score: float
    by_seed: tuple[float, ...]
    by_task_type: dict[str, Rate]
    episode_length: float
    valid_actions: float
    admissible_actions: float | None
    tasks_won: dict[str, float]  # per task: share of seeds in which it was won

    @property
    def seed_deviation(self) -> float | None:
        """Standard deviation of success between seeds (ddof 1); None with one seed."""
        return float(np.std(self.by_seed, ddof=1)) if len(self.by_seed) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "seed_deviation": self.seed_deviation}


def evaluate(
    tasks: Sequence[Task],
    policy: AnyPolicy,
    rules: RolloutRules,
    *,
    split: str,
    seeds: Sequence[int],
    temperature: float,
    batch: int = EVALUATED_TOGETHER,
    on_progress: Callable[[int, int], None] | None = None,
    on_step: OnStep | None = None,
) -> Evaluation:
    """Play each task once per seed, `batch` side by side.

    `on_progress(done, total)` counts episodes after every turn, `on_step` is told of every step.
    """
    if not tasks:
        raise ValueError(f"split {split!r} has no tasks to evaluate on")
    if len({task.id for task in tasks}) != len(tasks):
        raise ValueError(f"split {split!r} names a task twice; every task must be played exactly once per seed")
    rules = replace(rules, temperature=temperature)
    played: list[list[StepRecord]] = []
    total = len(tasks) * len(seeds)
    done = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        steps: list[StepRecord] = []
        for first in range(0, len(tasks), batch):
            panel = tasks[first : first + batch]

            def within(ended: int, _: int, before: int = done) -> None:
                if on_progress is not None:
                    on_progress(before + ended, total)

            steps += collect(panel, policy, rules, rng, on_progress=within, on_step=on_step)
            done += len(panel)
        played.append(steps)
    return summarise_panel(played, split=split, seeds=seeds, temperature=temperature)


def summarise_panel(
    played: Sequence[Sequence[StepRecord]], *, split: str, seeds: Sequence[int], temperature: float
) -> Evaluation:
    """The figures of a panel from its steps, one list of steps per seed."""
    games = [game for seed, steps in zip(seeds, played, strict=True) for game in played_episodes(steps, seed)]
    return summarise_games(games, split=split, seeds=seeds, temperature=temperature)


def summarise_games(games: Sequence[PlayedGame], *, split: str, seeds: Sequence[int], temperature: float) -> Evaluation:
    """The figures of a panel from the games that were played to their end."""
    won = _mean_by_task(games)
    types = {game.task: game.kind for game in games}
    listed = sum(game.listed for game in games)
    panels = [[game.won for game in games if game.seed == seed] for seed in seeds]
    return Evaluation(
        split=split,
        temperature=temperature,
        seeds=tuple(seeds),
        success=rate(list(won.values()), len(seeds)),
        score=float(np.mean([game.score for game in games])),
        by_seed=tuple(float(np.mean(panel)) for panel in panels if panel),
        by_task_type={
            kind: rate([won[task] for task in won if types[task] == kind], len(seeds))
            for kind in sorted(set(types.values()))
        },
        episode_length=float(np.mean([game.steps for game in games])),
        valid_actions=sum(game.valid for game in games) / sum(game.steps for game in games),
        admissible_actions=sum(game.admissible for game in games) / listed if listed else None,
        tasks_won=won,
    )


def rate(successes: Sequence[float], seeds: int = 1) -> Rate:
    """Mean of per-task successes with its 95 % interval (see the module's first lines)."""
    count = len(successes)
    mean = float(np.mean(successes))
    deviation = float(np.std(successes, ddof=1)) if count > 1 else 0.0
    if seeds == 1 or deviation == 0.0:
        low, high = wilson_interval(mean, count)
    else:
        half = NORMAL_95 * deviation / math.sqrt(count)
        low, high = max(0.0, mean - half), min(1.0, mean + half)
    return Rate(mean, low, high, count)


def wilson_interval(mean: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion `mean` seen in `count` trials (Wilson 1927)."""
    square = NORMAL_95**2
    centre = (mean + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def gain(before: Evaluation, after: Evaluation) -> Rate:
    """Difference in success on the same tasks, paired by task, with its 95 % interval.

    The interval joins those of the two rates by their distances from the means, less what the pairing takes off
    (Newcombe 1998, method 10). Unlike the normal interval of the differences it does not shrink to nothing where few
    tasks, or none, changed.
    """
    if before.tasks_won.keys() != after.tasks_won.keys():
        raise ValueError("the two evaluations were not on the same tasks, so their difference is not a gain")
    first, second = before.success, after.success
    correlation = _correlation(*([one.tasks_won[task] for task in before.tasks_won] for one in (before, after)))
    mean = second.mean - first.mean
    below = _joined(second.mean - second.low, first.high - first.mean, correlation)
    above = _joined(second.high - second.mean, first.mean - first.low, correlation)
    return Rate(mean, mean - below, mean + above, len(before.tasks_won))


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of independent values, one per training seed, and the limits of its 95 % interval (Student's t).

    Raises:
        ValueError: There are fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"an interval over training seeds needs at least 2, got {len(values)}")
    mean = float(np.mean(values))
    half = student_95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def student_95(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, within 0.004 above.

    Between and above these the series of Cornish and Fisher (1938).
    """
    if freedom in (1, 2):
        return math.tan(0.475 * math.pi) if freedom == 1 else 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = NORMAL_95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def _joined(one: float, other: float, correlation: float) -> float:
    """How far a difference reaches whose two sides reach so far each."""
    return math.sqrt(max(one**2 - 2 * correlation * one * other + other**2, 0.0))


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's, with the method's continuity correction of a positive covariance; 0 where one side does not vary."""
    one, other = np.asarray(first) - np.mean(first), np.asarray(second) - np.mean(second)
    size = math.sqrt(float(one @ one) * float(other @ other))
    shared = float(one @ other)
    if shared > 0.0:
        shared = max(shared - 0.5, 0.0)
    return shared / size if size > 0.0 else 0.0


def _mean_by_task(games: Sequence[PlayedGame]) -> dict[str, float]:
    won: dict[str, list[bool]] = defaultdict(list)
    for game in games:
        won[game.task].append(game.won)
    return {task: float(np.mean(values)) for task, values in won.items()}
