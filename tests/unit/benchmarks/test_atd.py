"""ATD: the limits in which the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch


def by_way_of(wins: list[float], ways: str = "llrr", **options: Any) -> FloatArray:
    """Advantages of (start, hub), float64[M, 2]: one rollout per letter goes from start to hub, the return is there."""
    count = len(wins)
    batch = StepBatch.from_columns(
        group=["task"] * (2 * count),
        trajectory=[t for t in range(count) for _ in range(2)],
        step=[0, 1] * count,
        observation=["start", "hub"] * count,
        action=[taken for way in ways for taken in (way, "go")],
        reward=[reward for win in wins for reward in (0, win)],
    )
    return compute_advantages(batch, "atd:ATD", 1.0, **options).values.reshape(count, 2)


@pytest.mark.parametrize(
    ("wins", "options", "at_start"),
    [
        pytest.param([1, 0, 1, 0], {}, [0.25, -0.25] * 2, id="luck after the next observation counts half"),
        pytest.param([1, 0, 1, 0], {"lambda_min": 0.0}, [0.0] * 4, id="with lambda 0 luck does not count"),
        pytest.param([1, 1, 0, 0], {}, [0.5, 0.5, -0.5, -0.5], id="a past that decides counts whole"),
        pytest.param([1, 1, 0, 0], {"trust": 0.0}, [0.25, 0.25, -0.25, -0.25], id="without trust"),
        pytest.param([1, 1, 0, 0], {"history_length": 0}, [0.25, 0.25, -0.25, -0.25], id="without history"),
    ],
)
def test_how_far_the_past_is_credited(wins: list[float], options: dict[str, Any], at_start: list[float]) -> None:
    advantage_M2 = by_way_of(wins, **options)
    np.testing.assert_allclose(advantage_M2[:, 0], at_start)
    np.testing.assert_allclose(advantage_M2[:, 1], np.array(wins) - 0.5)


def test_other_tasks_say_how_far_an_observation_is_trusted() -> None:
    """A task whose rollouts all came the same way learns from one with two ways that the hub is an alias."""
    one_way = {"group": ["one"] * 4, "way": "ll", "wins": [1, 0]}
    both = {"group": ["both"] * 8, "way": "llrr", "wins": [1, 1, 0, 0]}
    values = []
    for tasks in ([one_way], [one_way, both]):
        ways = "".join(str(task["way"]) for task in tasks)
        wins = [win for task in tasks for win in task["wins"]]
        batch = StepBatch.from_columns(
            group=[name for task in tasks for name in task["group"]],
            trajectory=[t for t in range(len(wins)) for _ in range(2)],
            step=[0, 1] * len(wins),
            observation=["start", "hub"] * len(wins),
            action=[taken for way in ways for taken in (way, "go")],
            reward=[reward for win in wins for reward in (0, win)],
        )
        values.append(compute_advantages(batch, "atd:ATD", 1.0).values[0])
    assert values[0] == pytest.approx(0.25)
    assert values[1] > 0.3


def test_a_penalty_counts_at_its_own_observation_and_no_earlier() -> None:
    batch = StepBatch.from_columns(
        group=["task"] * 4,
        trajectory=[0, 0, 1, 1],
        step=[0, 1, 0, 1],
        observation=["start", "hub"] * 2,
        action=["go"] * 4,
        reward=[0, 1, 0, 1],
        penalty=[0, 0.1, 0, 0],
    )
    np.testing.assert_allclose(compute_advantages(batch, "atd:ATD", 1.0).values, [0, -0.05, 0, 0.05], atol=1e-12)


def test_equal_rollouts_get_exactly_0() -> None:
    assert not by_way_of([0.3, 0.3, 0.3, 0.3]).any()
    assert not by_way_of([0.3, 0.3, 0.3, 0.3], mode="batch_std").any()


def test_batch_std_has_spread_1() -> None:
    assert by_way_of([5, 1, 3, 0], mode="batch_std").std() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("option", "value"), [("lambda_min", 1.5), ("trust", -1), ("mode", "mean_norm"), ("history_length", 0.5)]
)
def test_options_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        by_way_of([0, 1, 0, 1], **{option: value})


def test_it_needs_actions() -> None:
    batch = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[0])
    with pytest.raises(ValueError, match="needs the column action"):
        compute_advantages(batch, "atd:ATD")
    assert compute_advantages(batch, "atd:ATD", history_length=0).values.tolist() == [0.0]


def test_rewards_too_small_to_be_halved_are_no_advantage() -> None:
    """5e-324 is the smallest number there is: half of it is rounded to 0."""
    rows = {
        "group": ["a"] * 4,
        "trajectory": [0, 0, 1, 1],
        "step": [0, 1, 0, 1],
        "observation": ["o"] * 4,
        "action": ["x"] * 4,
        "reward": [0.0, 5e-324, 0.0, 5e-324],
    }
    assert not compute_advantages(StepBatch.from_columns(**rows), "atd:ATD", gamma=1.0).values.any()
