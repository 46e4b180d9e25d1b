from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hgpo.estimators import Advantages, compute_advantages
from hgpo.estimators.g2po import node_values, value_gains
from hgpo.estimators.transition_graph import TransitionGraph, transition_graph
from hgpo.steps import StepBatch

# gamma .5. a: hall -> kitchen -> end with score 4; b: hall -> garden -> end with score 0.
# V: hall (.25 * 4 + 0) / 2 = .5, kitchen .5 * 4 = 2, garden 0, ends 4 and 0.
COLUMNS: dict[str, Any] = {
    "group": [0] * 4,
    "trajectory": ["a", "a", "b", "b"],
    "step": [0, 1, 0, 1],
    "observation": ["hall", "kitchen", "hall", "garden"],
    "reward": [0.0, 4.0, 0.0, 0.0],
}


def run(gamma: float = 0.5, mode: str = "mean_norm", step_advantage_w: float = 1.0, **changes: Any) -> Advantages:
    batch = StepBatch.from_columns(**(COLUMNS | changes))
    return compute_advantages(batch, "g2po", gamma, mode=mode, step_advantage_w=step_advantage_w)


def values(gamma: float = 0.5, **changes: Any) -> dict[str, float]:
    """Value of each observation."""
    batch = StepBatch.from_columns(**(COLUMNS | changes))
    graph = transition_graph(batch, ends="own")
    worth = node_values(batch, graph, gamma)
    labels = batch.labels["observation"]
    return {str(labels[o]): float(v) for o, v in zip(graph.observation_V, worth, strict=True) if o >= 0}


def test_by_hand_without_std() -> None:
    result = run()
    assert result.episode is not None
    assert result.episode.advantage.tolist() == [2.0, 2.0, -2.0, -2.0]
    assert [level.k for level in result.levels] == [0, 1]
    assert result.levels[0].advantage.tolist() == [1.0, 0.0, -1.0, 0.0]  # next values 2 and 0 in the hall
    assert result.levels[0].used.tolist() == [True, False, True, False]
    assert result.levels[1].advantage.tolist() == [0.75, 1.25, -1.25, -0.75]  # gains 1.5 2 -.5 0
    assert result.levels[1].size.tolist() == [4] * 4
    assert result.values.tolist() == [3.75, 3.25, -4.25, -2.75]
    assert result.returns.tolist() == [2.0, 4.0, 0.0, 0.0]


def test_by_hand_with_unbiased_std() -> None:
    episode_std = math.sqrt(16 / 3) + 1e-6
    node_std = math.sqrt(2) + 1e-6
    edge_std = math.sqrt((0.75**2 + 1.25**2 + 1.25**2 + 0.75**2) / 3) + 1e-6
    expected = [
        2 / episode_std + 1 / node_std + 0.75 / edge_std,
        2 / episode_std + 1.25 / edge_std,
        -2 / episode_std - 1 / node_std - 1.25 / edge_std,
        -2 / episode_std - 0.75 / edge_std,
    ]
    np.testing.assert_allclose(run(mode="mean_std_norm").values, expected, rtol=1e-12)


@pytest.mark.parametrize("weight", [0, 0.8, 3.0])
def test_the_step_terms_are_weighted(weight: float) -> None:
    result = run(step_advantage_w=weight)
    expected = [2 + 1.75 * weight, 2 + 1.25 * weight, -2 - 2.25 * weight, -2 - 0.75 * weight]
    np.testing.assert_allclose(result.values, expected, rtol=1e-12)
    assert all(level.weight.tolist() == [weight] * 4 for level in result.levels)


def test_the_last_step_is_discounted_once() -> None:
    assert values(0.5) == {"hall": 0.5, "kitchen": 2.0, "garden": 0.0}
    assert values(1.0) == {"hall": 2.0, "kitchen": 4.0, "garden": 0.0}
    assert values(0.0) == {"hall": 0.0, "kitchen": 0.0, "garden": 0.0}


def test_a_trajectory_that_comes_back_visits_twice() -> None:
    """hall at t = 0 and 1 of 3 steps with score 8: (1 + 2) / 2; the edge from hall to hall has gain 0."""
    columns = {
        "group": [0] * 3,
        "trajectory": ["a"] * 3,
        "step": [0, 1, 2],
        "observation": ["hall", "hall", "kitchen"],
        "reward": [0.0, 0.0, 8.0],
    }
    assert values(**columns) == {"hall": 1.5, "kitchen": 4.0}
    np.testing.assert_allclose(run(**columns).levels[1].advantage, [-6.5 / 3, 1 / 3, 5.5 / 3], rtol=1e-12, atol=1e-12)


def test_the_penalty_lowers_the_next_value_and_the_score_but_not_the_gain() -> None:
    result = run(penalty=[0.5, 0.0, 0.0, 0.0])
    assert result.levels[0].advantage.tolist() == [0.75, 0.0, -0.75, 0.0]
    assert result.levels[1].advantage.tolist() == run().levels[1].advantage.tolist()
    assert result.episode is not None
    np.testing.assert_allclose(result.episode.advantage, [1.625, 2.125, -1.875, -1.875], rtol=1e-12)


def test_what_was_shown_at_the_end_does_not_matter() -> None:
    shown = ["kitchen", "hall", "garden", "kitchen"]
    assert run(next_observation=shown).values.tolist() == run().values.tolist()


def test_a_node_that_was_only_shown_has_the_value_of_the_step_that_led_there() -> None:
    """a's first step leads to the cellar, and the next is taken in the kitchen: one visit of the cellar, at t = 1."""
    shown = ["cellar", None, None, None]
    assert values(next_observation=shown) == {"hall": 0.5, "kitchen": 2.0, "garden": 0.0, "cellar": 2.0}


def test_gains_that_are_rounding_are_0() -> None:
    """.1 + .2 and .3 are equal on paper; task 1's values are small, but not beside each other."""
    graph = TransitionGraph(
        source_N=np.array([0, 1, 3]),
        target_N=np.array([1, 2, 4]),
        task_V=np.array([0, 0, 0, 1, 1]),
        observation_V=np.arange(5),
        goal_V=np.zeros(5, dtype=np.bool_),
    )
    gains = value_gains(graph, np.array([0.3, 0.1 + 0.2, 10.0, 1e-15, 3e-15]), np.array([10.0, 10.0, 3e-15]))
    np.testing.assert_allclose(gains, [0.0, 9.7, 2e-15], rtol=1e-12)
    assert gains[0] == 0.0


def test_values_that_are_sums_of_different_rewards_may_be_equal() -> None:
    """a earns .1 + .2 and b .3: no step gains anything."""
    batch = StepBatch.from_columns(
        group=[0] * 4, trajectory=list("aabb"), step=[0, 1, 0, 1], observation=["hall", "kitchen", "hall", "garden"],
        reward=[0.1, 0.2, 0.3, 0.0],
    )  # fmt: skip
    assert compute_advantages(batch, "g2po", gamma=1.0).values.tolist() == [0.0] * 4


def test_next_values_that_penalties_make_equal_are_equal() -> None:
    """10 - 10000010.04 and .01 - 10000000.05 are equal on paper."""
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=["a", "b"], step=[0, 0], observation=["hall", "hall"], reward=[10.0, 0.01],
        penalty=[10000010.04, 10000000.05],
    )  # fmt: skip
    assert compute_advantages(batch, "g2po").levels[0].advantage.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "std"}, "mode must be one of"),
        ({"step_advantage_w": -0.5}, "step_advantage_w must be finite and at least 0"),
        ({"step_advantage_w": "1"}, "step_advantage_w must be a number"),
        ({"omega": 1.0}, "unknown option 'omega' for estimator 'g2po'; valid: mode, step_advantage_w"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_advantages(StepBatch.from_columns(**COLUMNS), "g2po", **options)
