from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hgpo.estimators import Advantages, compute_advantages
from hgpo.steps import StepBatch

# a: hall -> kitchen -> won, b: hall -> kitchen -> lost, c: hall -> garden -> lost.
# Distances: kitchen 1, hall 2, the garden and the two lost ends 3 (one more than the largest).
COLUMNS: dict[str, Any] = {
    "group": [0] * 6,
    "trajectory": ["a", "a", "b", "b", "c", "c"],
    "step": [0, 1] * 3,
    "observation": ["hall", "kitchen", "hall", "kitchen", "hall", "garden"],
    "reward": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
}


def run(gamma: float = 0.95, mode: str = "mean_norm", columns: Any = None, **options: Any) -> Advantages:
    batch = StepBatch.from_columns(**(COLUMNS | (columns or {})))
    return compute_advantages(batch, "graphgpo", gamma, mode=mode, **options)


def graph_term(**options: Any) -> list[float]:
    (level,) = run(**options).levels
    rounded: list[float] = np.round(level.advantage, 9).tolist()
    return rounded


def test_by_hand_without_std() -> None:
    """Returns 1 10 1 .01 .01 .01; the hall's mean is .67, the kitchen's 5.005."""
    result = run()
    assert graph_term() == [0.33, 4.995, 0.33, -4.995, -0.66, 0.0]
    assert result.levels[0].used.tolist() == [True] * 5 + [False]
    assert result.episode is not None
    np.testing.assert_allclose(result.episode.advantage, np.array([2, 2, -1, -1, -1, -1]) / 3, rtol=1e-12)
    expected = np.array([2, 2, -1, -1, -1, -1]) / 3 + [0.33, 4.995, 0.33, -4.995, -0.66, 0.0]
    np.testing.assert_allclose(result.values, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.returns, [0.95, 1, 0, 0, 0, 0])


def test_by_hand_with_unbiased_std() -> None:
    result = run(mode="mean_std_norm")
    hall = math.sqrt((2 * 0.33**2 + 0.66**2) / 2) + 1e-6
    kitchen = math.sqrt(2 * 4.995**2) + 1e-6
    expected = [0.33 / hall, 4.995 / kitchen, 0.33 / hall, -4.995 / kitchen, -0.66 / hall, 0.0]
    np.testing.assert_allclose(result.levels[0].advantage, expected, rtol=1e-12, atol=1e-12)


def test_gamma_is_not_the_discount_of_distance() -> None:
    assert run(gamma=0.5).values.tolist() == run(gamma=1.0).values.tolist()


def test_options_of_the_return() -> None:
    assert graph_term(unreachable="zero") == pytest.approx([1 / 3, 5.0, 1 / 3, -5.0, -2 / 3, 0.0])
    assert graph_term(distance_gamma=0.5) == pytest.approx([1.25, 4.375, 1.25, -4.375, -2.5, 0.0])  # 5 10 5 1.25 1.25
    assert graph_term(success_reward=1.0) == pytest.approx([0.033, 0.4995, 0.033, -0.4995, -0.066, 0.0])
    assert graph_term(distance_gamma=1.0) == [0.0] * 6
    assert graph_term(distance_gamma=1.0, unreachable="zero") == pytest.approx([10 / 3, 5, 10 / 3, -5, -20 / 3, 0])


def test_distances_may_count_from_the_node_of_the_step() -> None:
    """Exponents 0 0 0 3 2 1: from the hall 1 - 2 + 1 and 3 - 2 + 1, from the kitchen 0 - 1 + 1 and 3 - 1 + 1."""
    expected = [3.3, 4.995, 3.3, -4.995, -6.6, 0.0]
    assert graph_term(normalize_distance=True) == pytest.approx(expected)


def test_weights() -> None:
    result = run(step_advantage_w=0.5, episode_advantage_w=2.0)
    assert result.episode is not None
    assert result.episode.weight.tolist() == [2.0] * 6
    assert result.levels[0].weight.tolist() == [0.5] * 6
    expected = 2.0 * result.episode.advantage + 0.5 * result.levels[0].advantage
    np.testing.assert_allclose(result.values, expected, rtol=1e-12)


def test_the_penalty_lowers_its_own_return() -> None:
    assert graph_term(columns={"penalty": [0.3, 0, 0, 0, 0, 0]}) == pytest.approx(
        [0.13, 4.995, 0.43, -4.995, -0.56, 0.0]
    )


def test_returns_that_penalties_make_equal_are_equal() -> None:
    """10 - 10000010.04 and .01 - 10000000.05, in the kitchen, are equal on paper."""
    equal = {"penalty": [0, 10000010.04, 0, 10000000.05, 0, 0]}
    assert run(mode="mean_std_norm", columns=equal).levels[0].advantage[[1, 3]].tolist() == [0.0, 0.0]


def test_the_success_column_decides_who_won() -> None:
    """c won: the garden is one step away, the hall two, and the kitchen leads nowhere."""
    success = {"success": [False] * 5 + [True]}
    assert graph_term(columns=success) == pytest.approx([-0.33, 0.0, -0.33, 0.0, 0.66, 0.0])


def test_a_trajectory_that_was_cut_off_stopped_where_it_was_shown_to_be() -> None:
    shown = {"next_observation": ["kitchen", "the end", "kitchen", "kitchen", "garden", "garden"]}
    assert graph_term(columns=shown) == pytest.approx([0.33, 4.5, 0.33, -4.5, -0.66, 0.0])


def test_a_task_without_a_win_has_no_graph_term() -> None:
    assert graph_term(columns={"reward": [0.0] * 6}, mode="mean_std_norm") == [0.0] * 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "std"}, "mode must be one of"),
        ({"step_advantage_w": -1}, "step_advantage_w must be finite"),
        ({"episode_advantage_w": float("inf")}, "episode_advantage_w must be finite"),
        ({"distance_gamma": 1.5}, "distance_gamma must be from 0 to 1"),
        ({"distance_gamma": -0.1}, "distance_gamma must be finite and at least 0"),
        ({"success_reward": -1.0}, "success_reward must be finite and at least 0"),
        ({"success_reward": 1e300}, r"success_reward must be from 0 to 1e\+100"),
        ({"unreachable": "inf"}, "unreachable must be one of farthest, zero"),
        ({"normalize_distance": 1}, "normalize_distance must be True or False"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_advantages(StepBatch.from_columns(**COLUMNS), "graphgpo", **options)
