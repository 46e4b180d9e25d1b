"""Statistics of an evaluation: a fixed set of tasks, each played exactly once per seed.

The interval is Wilson's over tasks, the unit that generalises. A task that is played with several seeds counts as one
to as many trials, depending on how much of the variance is between tasks (decision 011).
`gain` combines the intervals of two evaluations into the interval of their difference.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hgpo.rollout.records import EpisodeSummary, StepCounts

NORMAL_95 = 1.959963984540054
POWER = 0.8
RESAMPLES = 10_000
SHIFT_OF_FEW = {1: 16.334, 2: 5.653, 3: 4.256, 4: 3.761, 5: 3.514}
"""Degrees of freedom -> the true mean, in standard errors, that Student's test at 5 % finds in 80 of 100 cases, by the
noncentral t. With more degrees, the sum of two quantiles of t (`detectable`) is less than 0.5 % below it."""

# Constraints that hold for a file of an evaluation (`hgpo.evaluation.result_files`).
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean over tasks with its 95 % interval."""

    mean: Fraction
    low: Fraction
    high: Fraction
    tasks: Annotated[Count, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of an evaluation. Fractions are 0-1.

    Attributes:
        split: Split of the tasks.
        temperature: Temperature of the sampling; 0 is greedy.
        seeds: Each task is played once per seed.
        success: Success over tasks, with its interval.
        score: Mean over tasks of the environment's grade.
        by_seed: Success per seed, in the order of `seeds`; None where no episode was played to its end.
        by_task_type: Success per task type.
        episode_length: Mean number of steps.
        valid_actions: Share of responses that had the required form.
        admissible_actions: Share of actions that the environment had listed; None if it lists none.
        tasks_won: Per task the share of seeds in which it was won.
    """

    split: str
    temperature: Amount
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    success: Rate
    score: Finite
    by_seed: tuple[Fraction | None, ...]
    by_task_type: dict[str, Rate]
    episode_length: Amount
    valid_actions: Fraction
    admissible_actions: Fraction | None
    tasks_won: Annotated[dict[str, Fraction], Field(min_length=1)]

    @property
    def seed_deviation(self) -> float | None:
        """Standard deviation of success between seeds (ddof 1); None with fewer than two."""
        known = [success for success in self.by_seed if success is not None]
        return float(np.std(known, ddof=1)) if len(known) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "seed_deviation": self.seed_deviation}


def summarise(
    episodes: Sequence[EpisodeSummary], *, split: str, seeds: Sequence[int], temperature: float
) -> Evaluation:
    """The figures of the episodes that were played to their end."""
    wins_by_task: dict[str, list[bool]] = defaultdict(list)
    scores_by_task: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        wins_by_task[episode.task].append(episode.won)
        scores_by_task[episode.task].append(episode.score)
    won = {task: float(np.mean(wins)) for task, wins in wins_by_task.items()}
    types = {episode.task: episode.kind for episode in episodes}
    counts = sum((episode.counts for episode in episodes), StepCounts())
    by_seed = [[episode.won for episode in episodes if episode.seed == seed] for seed in seeds]
    return Evaluation(
        split=split,
        temperature=temperature,
        seeds=tuple(seeds),
        success=rate(list(won.values()), len(seeds)),
        score=float(np.mean([np.mean(scores) for scores in scores_by_task.values()])),
        by_seed=tuple(float(np.mean(wins)) if wins else None for wins in by_seed),
        by_task_type={
            kind: rate([won[task] for task in won if types[task] == kind], len(seeds))
            for kind in sorted(set(types.values()))
        },
        episode_length=counts.steps / len(episodes),
        valid_actions=counts.valid_share,
        admissible_actions=counts.admissible_share,
        tasks_won=won,
    )


def rate(successes: Sequence[float], seeds: int = 1) -> Rate:
    """Mean of per-task successes with its 95 % interval (see the module's docstring).

    A task counts as p (1 - p) / v trials, for p and v the mean and variance over the tasks and two more, one won and
    one lost: without these, few tasks that were almost all won would seem to vary less than they do.
    """
    count, mean = len(successes), float(np.mean(successes))
    guarded = np.array([*successes, 0.0, 1.0])
    trials = round(float(guarded.mean() * (1 - guarded.mean()) / guarded.var()), 9)  # 1 if no task was won sometimes
    return Rate(mean, *wilson_interval(mean, count * min(seeds, trials)), count)


def wilson_interval(mean: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion `mean` seen in `count` trials (Wilson 1927)."""
    square = NORMAL_95**2
    centre = (mean + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 / (1 + square / count) * math.sqrt(mean * (1 - mean) / count + square / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def gain(before: Evaluation, after: Evaluation) -> Rate:
    """Difference in success on the same tasks, paired by task, with its 95 % interval.

    The interval combines the intervals of the two rates and accounts for the correlation of the paired results
    (Newcombe 1998, method 10). Unlike the normal interval of the differences, it does not shrink to zero width if few
    tasks, or none, changed. `ValueError` if the tasks differ.
    """
    if before.tasks_won.keys() != after.tasks_won.keys():
        raise ValueError("the two evaluations have different tasks, so their results cannot be paired")
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
    half = student_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def student_quantile(probability: float, freedom: float) -> float:
    """A quantile of Student's t for a probability from 0.8 to 0.975; exact for 1 and 2 degrees of freedom.

    For other degrees the series of Cornish and Fisher (1938), with an error of at most 0.004 from 3 on.
    """
    if freedom in (1, 2):
        twice = 2 * probability - 1
        return math.tan(math.pi * twice / 2) if freedom == 1 else twice * math.sqrt(2 / (1 - twice**2))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def detectable(deviation: float, count: int) -> float:
    """Least true difference that a paired test of `count` units finds in 80 of 100 cases, at 5 %, two-sided.

        (t_0.975 + t_0.8) deviation / sqrt(count),  count - 1 degrees of freedom; `SHIFT_OF_FEW` for few

    Args:
        deviation: Standard deviation of the paired differences between units, such as training seeds or tasks.
        count: Number of units, at least 2.
    """
    freedom = count - 1
    shift = SHIFT_OF_FEW.get(freedom) or student_quantile(0.975, freedom) + student_quantile(POWER, freedom)
    return shift * deviation / math.sqrt(count)


def detectable_by(change: Rate) -> float:
    """The difference that is `detectable` with the tasks of a `gain`, at most 1; for a single task 1."""
    return 1.0 if change.tasks < 2 else min(1.0, detectable(task_deviation(change), change.tasks))


def task_deviation(change: Rate) -> float:
    """Standard deviation of the differences between tasks, from the interval of a `gain`."""
    return (change.high - change.low) / (2 * NORMAL_95) * math.sqrt(change.tasks)


def units_needed(deviation: float, difference: float) -> int:
    """Least number of units for which `difference` is `detectable`, at least 2."""
    count = max(2, math.ceil(((NORMAL_95 + NormalDist().inv_cdf(POWER)) * deviation / difference) ** 2))
    while detectable(deviation, count) > difference:
        count += 1
    return count


def paired_bootstrap(difference_ST: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile limits of the 95 % interval of the mean difference over training seeds and tasks.

    Seeds are drawn with replacement, and so are tasks, which all seeds have in common; the random numbers are the same
    in every call. With few seeds the interval is too narrow: Student's t over the seeds is the test of two methods.

    Args:
        difference_ST: Difference in success per training seed and task.

    Example: one seed and differences 1, 0, 1, 0 give about (0, 1).
    """
    rng = np.random.default_rng(0)
    seeds, tasks = difference_ST.shape
    seed_weight_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    task_weight_BT = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES) / tasks
    mean_B = np.sum((seed_weight_BS @ difference_ST) * task_weight_BT, axis=1)
    low, high = np.quantile(mean_B, [0.025, 0.975])
    return float(low), float(high)


def _joined(one: float, other: float, correlation: float) -> float:
    """Distance of a difference's limit from its mean, from the same distances of the two rates."""
    return math.sqrt(one**2 - 2 * correlation * one * other + other**2)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation, with Newcombe's continuity correction of positive covariances; 0 if a side is constant."""
    one, other = np.asarray(first) - np.mean(first), np.asarray(second) - np.mean(second)
    size = math.sqrt(float(one @ one) * float(other @ other))
    shared = float(one @ other)
    if shared > 0.0:
        shared = max(shared - 0.5, 0.0)
    return shared / size if size > 0.0 else 0.0
