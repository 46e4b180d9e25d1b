"""Batch gradients of an estimator beside the true policy gradient, with tasks as the units of resampling.

The batch gradient of a task is the sum over its steps of advantage times gradient of the log-prob. Its true policy
gradient, that of the probability to win, is estimated without bias from half of the rollouts,

    G_h = 2/R * sum over rollouts i of half h of (won_i - mean won of the half's others) * sum_t grad log pi(a_t)

and a batch is compared with the half that it is not part of. Everything that is reported is a function of inner
products between two tasks' gradients, so a resampled set of tasks needs only weights.

Shapes: T tasks, B batches of a task, W buckets of a sketch, X resampled sets. Matrices [T, T] hold inner products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TASKS_PER_UPDATE = 16
RESAMPLES = 1000
FIGURES = ("same tasks", "other tasks", "direction", "direction, all tasks", "noise")


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Mean inner products between tasks, float64[T, T] each, without any rollout on both sides except in `length`.

    Attributes:
        length: of one batch with the same batch. mean: of two different batches.
        along: of a batch with the true gradient of the other half. true: of the two halves' true gradients.
    """

    length: Floats
    mean: Floats
    along: Floats
    true: Floats


def products(batch_TBW: NDArray[np.float32], true_T2W: NDArray[np.float32]) -> Products:
    """The inner products of all tasks' sketched gradients.

    Args:
        batch_TBW: of an estimator; the first half of the batches are from the first half of the rollouts.
        true_T2W: the policy gradient, from each half of the rollouts.
    """
    batches = batch_TBW.shape[1]
    length = sum(_gram(batch_TBW[:, b], batch_TBW[:, b]) for b in range(batches)) / batches
    sum_TW = batch_TBW.sum(axis=1)
    mean = (_gram(sum_TW, sum_TW) / batches - length) / (batches - 1)
    first_TW, second_TW = (half_TBW.sum(axis=1) for half_TBW in np.split(batch_TBW, 2, axis=1))
    along = (_gram(first_TW, true_T2W[:, 1]) + _gram(second_TW, true_T2W[:, 0])) / batches
    halves = _gram(true_T2W[:, 0], true_T2W[:, 1])
    return Products(length, mean, along, (halves + halves.T) / 2)


def _gram(one_TW: NDArray[np.float32], other_TW: NDArray[np.float32]) -> Floats:
    """The inner products of all pairs of rows."""
    return (one_TW @ other_TW.T).astype(np.float64)


def figures(found: Products, weight_XT: Floats, tasks: int = TASKS_PER_UPDATE) -> dict[str, Floats]:
    """Each of `FIGURES` for each weighting of the tasks, float64[X]; NaN where a squared length comes out negative.

    Cosines are ratios of means: mean inner product over the root of the product of the mean squared lengths.
    "same tasks": cosine of a batch of `tasks` tasks with the true gradient of these tasks. "other tasks": with
    that of the whole distribution, from other tasks. "direction": the cosine of the expected batch gradient with the
    true one, for the same tasks and over all tasks; below 1 is bias. "noise": variance of the batch gradient over its
    squared mean.
    """

    def squared(matrix: Floats) -> Floats:
        return tasks * _within(matrix, weight_XT) + tasks * (tasks - 1) * _between(matrix, weight_XT)

    with np.errstate(invalid="ignore", divide="ignore"):
        length, mean, along, true = map(squared, (found.length, found.mean, found.along, found.true))
        general, direction = _between(found.along, weight_XT), _between(found.true, weight_XT)
        return {
            "same tasks": along / np.sqrt(length * true),
            "other tasks": tasks * general / np.sqrt(length * direction),
            "direction": along / np.sqrt(mean * true),
            "direction, all tasks": general / np.sqrt(_between(found.mean, weight_XT) * direction),
            "noise": length / mean - 1.0,
        }


def _within(matrix: Floats, weight_XT: Floats) -> Floats:
    """The mean product of a task with itself."""
    return weight_XT @ np.diag(matrix) / weight_XT.sum(axis=1)


def _between(matrix: Floats, weight_XT: Floats) -> Floats:
    """The mean product of two different tasks; copies of one task are not different."""
    pairs_X = np.einsum("xi,ij,xj->x", weight_XT, matrix, weight_XT, optimize=True) - weight_XT**2 @ np.diag(matrix)
    return pairs_X / (weight_XT.sum(axis=1) ** 2 - (weight_XT**2).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, or a difference of two, with its 95 % interval over tasks."""

    value: float
    low: float
    high: float


def compare(found: Mapping[str, Products], references: Sequence[str]) -> dict[str, dict[str, dict[str, Interval]]]:
    """{estimator: {figure: {"": its interval, reference: that of its difference to the reference}}}."""
    weight_XT = task_weights(len(next(iter(found.values())).true), seed=0)
    of = {name: figures(one, weight_XT) for name, one in found.items()}
    return {
        name: {
            figure: {"": interval(value_X)}
            | {other: interval(value_X - of[other][figure]) for other in references if other != name and other in of}
            for figure, value_X in one.items()
        }
        for name, one in of.items()
    }


def task_weights(tasks: int, seed: int) -> Floats:
    """How often each resampled set contains each task, float64[1 + RESAMPLES, T]; the first set is the tasks."""
    draws = np.random.default_rng(seed).multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES)
    return np.concatenate([np.ones((1, tasks)), draws])


def interval(value_X: Floats) -> Interval:
    """The value and interval of a figure from those of the sets of `task_weights`; sets with NaN are left out."""
    low, high = np.nanquantile(value_X[1:], [0.025, 0.975]) if np.isfinite(value_X[1:]).any() else (np.nan, np.nan)
    return Interval(float(value_X[0]), float(low), float(high))
