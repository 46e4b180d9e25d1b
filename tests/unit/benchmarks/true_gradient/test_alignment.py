"""Figures of gradients whose mean, noise and true direction are known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from true_gradient.alignment import compare, figures, products

WIDTH = 3000
Gradients = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Of batches [T, B, W], and the true one from each half of the rollouts [T, 2, W]."""


def drawn(*, common: float, noise: float, bias: float, tasks: int = 24, seed: int = 0) -> Gradients:
    """True gradients: `common` to all tasks plus 1 of each task's own; six batches with a common bias, and noise."""
    draws, batches = np.random.default_rng(seed), 6

    def unit(*shape: int) -> np.ndarray:
        return draws.normal(size=(*shape, WIDTH)) / np.sqrt(WIDTH)

    true_T1W = common * unit(1, 1) + unit(tasks, 1)
    batch_TBW = true_T1W + bias * unit(1, 1) + noise * unit(tasks, batches)
    return batch_TBW.astype(np.float32), (true_T1W + 0.5 * unit(tasks, 2)).astype(np.float32)


def whole(gradients: Gradients, tasks: int) -> dict[str, float]:
    ones_1T = np.ones((1, len(gradients[0])))
    return {name: float(value_X[0]) for name, value_X in figures(products(*gradients), ones_1T, tasks).items()}


@pytest.mark.parametrize(("common", "noise", "bias"), [(1.0, 0.0, 0.0), (1.0, 3.0, 0.0), (0.5, 1.0, 1.0)])
@pytest.mark.parametrize("tasks", [1, 16])
def test_figures_are_those_of_the_construction(common: float, noise: float, bias: float, tasks: int) -> None:
    found = whole(drawn(common=common, noise=noise, bias=bias), tasks)
    true = tasks + tasks**2 * common**2  # squared length of the sum over the tasks
    mean = true + tasks**2 * bias**2
    length = mean + tasks * noise**2
    assert found["same tasks"] == pytest.approx(np.sqrt(true / length), abs=0.06)
    assert found["noise"] == pytest.approx(length / mean - 1, rel=0.1, abs=0.05)
    assert found["direction"] == pytest.approx(true / np.sqrt(mean * true), abs=0.06)
    assert found["other tasks"] == pytest.approx(tasks * common / np.sqrt(length), abs=0.06)
    assert found["direction, all tasks"] == pytest.approx(common / np.sqrt(common**2 + bias**2), abs=0.06)


def test_noise_alone_has_no_direction() -> None:
    pure = drawn(common=1, noise=1, bias=0, seed=1)[0], drawn(common=1, noise=0, bias=0)[1]
    assert abs(whole(pure, 16)["same tasks"]) < 0.15


def test_differences_are_paired_by_task() -> None:
    low, high = drawn(common=1, noise=1, bias=0), drawn(common=1, noise=2, bias=0)
    found = compare({"low": products(*low), "high": products(*high)}, ["high"])
    difference = found["low"]["same tasks"]["high"]
    assert 0 < difference.low < difference.value < difference.high
    assert found["high"]["same tasks"].keys() == {""}
    own = found["low"]["same tasks"][""]
    assert own.low < own.value < own.high
