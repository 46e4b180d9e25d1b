"""Partial pooling, worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.columns import FloatArray
from hgpo.estimators import Advantages, compute_advantages
from hgpo.estimators.levels import Normalisation, inverse_scale
from hgpo.grouping import GroupedValues, Runs, group_statistics
from hgpo.steps import StepBatch


def two_ways(returns: list[float], tasks: int = 1) -> StepBatch:
    """In each task half of the trajectories reach s by way of x, half by way of y; only the last step is rewarded."""
    count = len(returns)
    way = ["x"] * (count // 2) + ["y"] * (count // 2)
    return StepBatch.from_columns(
        group=[task for task in range(tasks) for _ in range(2 * count)],
        trajectory=[(task, t) for task in range(tasks) for t in range(count) for _ in range(2)],
        step=[0, 1] * (count * tasks),
        observation=[seen for _ in range(tasks) for t in range(count) for seen in (way[t], "s")],
        reward=[reward for _ in range(tasks) for r in returns for reward in (0, r)],
    )


def pooled(batch: StepBatch, **options: Any) -> Advantages:
    options = {"history_length": 1, "mode": "mean_norm", **options}
    return compute_advantages(batch, "hgpo", 1.0, weight_type="pooled", **options)


def at_s(values: FloatArray) -> list[float]:
    return np.round(values[1::2], 9).tolist()


def test_the_worked_example() -> None:
    """sigma^2 = 2, tau^2 = 7, lambda = 7/8: baselines 7/4 and -7/4."""
    advantages = pooled(two_ways([3, 1, -1, -3]))
    assert at_s(advantages.values) == [1.25, -0.75, 0.75, -1.25]
    assert at_s(advantages.levels[0].weight) == [0.125] * 4
    assert at_s(advantages.levels[1].weight) == [0.875] * 4


def test_a_level_without_differences_weighs_nothing() -> None:
    advantages = pooled(two_ways([1, -1, 1, -1]))
    assert not advantages.levels[1].weight.any()
    assert at_s(advantages.values) == [1, -1, 1, -1]


def test_a_level_of_singletons_weighs_nothing() -> None:
    """Nothing is known about the spread inside a group of one, so level 0 is all there is."""
    advantages = pooled(two_ways([3, -1]))
    assert not advantages.levels[1].weight.any()
    assert at_s(advantages.values) == [2, -2]


def test_leave_one_out_takes_the_variances_from_the_other_tasks() -> None:
    """Two equal tasks: sigma^2 and tau^2 are those of the worked example; one step is left out of means and sizes."""
    advantages = pooled(two_ways([3, 1, -1, -3], tasks=2), baseline="leave_one_out")
    share = 7 / (7 + 2)
    first = 3 - (share * 1 + (1 - share) * -1)
    second = 1 - (share * 3 + (1 - share) * -1 / 3)
    np.testing.assert_allclose(at_s(advantages.values)[:4], [first, second, -second, -first])


def test_one_task_alone_leaves_level_0() -> None:
    advantages = pooled(two_ways([3, 1, -1, -3]), baseline="leave_one_out")
    np.testing.assert_allclose(at_s(advantages.values), [4, 4 / 3, -4 / 3, -4])


def test_mean_std_norm_divides_all_levels_by_the_std_of_level_0() -> None:
    plain = pooled(two_ways([3, 1, -1, -3]))
    divided = pooled(two_ways([3, 1, -1, -3]), mode="mean_std_norm")
    np.testing.assert_allclose(at_s(divided.values), np.array(at_s(plain.values)) / (np.sqrt(5) + 1e-6))
    assert at_s(divided.levels[1].weight) == at_s(plain.levels[1].weight)


def test_dropped_early_levels_pass_their_share_on() -> None:
    advantages = pooled(two_ways([3, 1, -1, -3]), early="drop")
    assert advantages.levels[1].weight[0::2].tolist() == [0.0] * 4
    assert advantages.levels[0].weight[0::2].tolist() == [1.0] * 4
    assert advantages.levels[1].used.tolist() == [False, True] * 4
    assert at_s(advantages.values) == [1.25, -0.75, 0.75, -1.25]


@pytest.mark.parametrize("option", [{"length_weight_alpha": 1.0}, {"base_group": True}, {"missing": "zero"}])
def test_options_that_would_not_be_read_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        pooled(two_ways([1, 0]), **option)


def test_equal_returns_do_not_divide_by_nothing() -> None:
    runs = Runs.from_starts(np.array([True, False]))
    statistics = group_statistics(GroupedValues(np.ones(2)), runs, ddof=0)
    for epsilon in (0.0, 1e-320):  # 1 / 1e-320 is infinite
        assert inverse_scale(statistics, Normalisation(epsilon=epsilon)).tolist() == [1.0]
