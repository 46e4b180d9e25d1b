from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.estimators.transition_graph import (
    TransitionGraph,
    goal_distances,
    transition_graph,
    won,
)
from hgpo.returns import total_rewards
from hgpo.steps import StepBatch

# a: hall -> kitchen -> end (won), b: hall -> hall -> garden -> end (lost); rows not in time order.
COLUMNS: dict[str, Any] = {
    "group": [0] * 5,
    "trajectory": ["b", "a", "b", "a", "b"],
    "step": [2, 0, 0, 1, 1],
    "observation": ["garden", "hall", "hall", "kitchen", "hall"],
    "reward": [0.0, 0.0, 0.0, 1.0, 0.0],
}


def named(batch: StepBatch, graph: TransitionGraph, node: int) -> str:
    if graph.observation_V[node] >= 0:
        return str(batch.labels["observation"][graph.observation_V[node]])
    [step] = np.flatnonzero(graph.target_N == node)  # only the last step of a trajectory leads to its end
    return f"{'win' if graph.goal_V[node] else 'loss'} of {batch.labels['trajectory'][batch.trajectory[step]]}"


def edges(ends: str = "observed", **changes: Any) -> list[tuple[str, str]]:
    batch = StepBatch.from_columns(**(COLUMNS | changes))
    graph = transition_graph(batch, ends)
    pairs = zip(graph.source_N.tolist(), graph.target_N.tolist(), strict=True)
    return [(named(batch, graph, source), named(batch, graph, target)) for source, target in pairs]


def distances(**changes: Any) -> dict[str, int]:
    batch = StepBatch.from_columns(**(COLUMNS | changes))
    graph = transition_graph(batch)
    return {named(batch, graph, node): int(d) for node, d in enumerate(goal_distances(graph))}


def test_a_step_leads_to_the_next_observation_or_an_end_of_the_trajectory() -> None:
    assert edges() == [
        ("garden", "loss of b"),
        ("hall", "kitchen"),
        ("hall", "hall"),
        ("kitchen", "win of a"),
        ("hall", "garden"),
    ]
    assert edges("own") == edges()


def test_what_was_shown_after_a_losing_last_step_is_used_but_not_after_a_winning_one() -> None:
    shown = ["kitchen", "kitchen", "hall", "trophy", "garden"]
    assert edges(next_observation=shown)[0] == ("garden", "kitchen")
    assert edges(next_observation=shown)[3] == ("kitchen", "win of a")
    assert edges("own", next_observation=shown)[0] == ("garden", "loss of b")


def test_none_stands_for_the_next_step() -> None:
    assert edges(next_observation=[None] * 5) == edges()
    assert edges(next_observation=[None, "cellar", None, None, None])[1] == ("hall", "cellar")


def test_distances() -> None:
    assert distances() == {"garden": -1, "hall": 2, "kitchen": 1, "win of a": 0, "loss of b": -1}
    shown = ["kitchen", "kitchen", "hall", "trophy", "garden"]
    assert distances(next_observation=shown) == {"garden": 2, "hall": 2, "kitchen": 1, "win of a": 0}


def test_who_won() -> None:
    assert distances(success=[True, False, False, False, False]) == {
        "garden": 1,
        "hall": 2,
        "kitchen": -1,
        "win of b": 0,
        "loss of a": -1,
    }
    batch = StepBatch.from_columns(**(COLUMNS | {"reward": [2.0, 1.0, -3.0, -1.5, 0.0]}))
    assert total_rewards(batch).tolist() == [-1.0, -0.5]  # trajectories by first appearance: b, a
    assert won(batch).tolist() == [False, False]


def test_rewards_that_cancel_are_no_win() -> None:
    """.1 + .2 - .3 is 5.6e-17 in floating point."""
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=["a"] * 3, step=[0, 1, 2], observation=list("xyz"), reward=[0.1, 0.2, -0.3]
    )
    assert total_rewards(batch)[0] > 0
    assert won(batch).tolist() == [False]


def test_nobody_won() -> None:
    assert set(distances(reward=[0.0] * 5).values()) == {-1}


def test_tasks_share_no_node() -> None:
    """The kitchen of task 1 is not one step from the end of task 0."""
    batch = StepBatch.from_columns(
        group=[0, 1], trajectory=["a", "b"], step=[0, 0], observation=["kitchen", "kitchen"], reward=[1.0, 0.0]
    )
    graph = transition_graph(batch)
    assert graph.task_V.tolist() == [0, 1, 0, 1]
    assert graph.observation_V.tolist() == [0, 0, -1, -1]
    assert goal_distances(graph).tolist() == [1, -1, 0, -1]


def test_a_shorter_way_through_another_trajectory() -> None:
    """a wanders r0 r1 r2 r3 and wins; b steps from r0 to r3 and loses."""
    batch = StepBatch.from_columns(
        group=[0] * 6,
        trajectory=["a"] * 4 + ["b"] * 2,
        step=[0, 1, 2, 3, 0, 1],
        observation=["r0", "r1", "r2", "r3", "r0", "r3"],
        reward=[0, 0, 0, 1, 0, 0],
    )
    graph = transition_graph(batch)
    assert goal_distances(graph)[graph.source_N].tolist() == [2, 3, 2, 1, 2, 1]


def test_a_long_chain() -> None:
    count = 5000
    batch = StepBatch.from_columns(
        group=[0] * count, trajectory=[0] * count, step=range(count), observation=range(count), reward=[1.0] * count
    )
    graph = transition_graph(batch)
    np.testing.assert_array_equal(goal_distances(graph)[graph.source_N], np.arange(count, 0, -1))


def test_an_unknown_rule_for_ends() -> None:
    with pytest.raises(ValueError, match="ends must be one of observed, own; got 'shared'"):
        transition_graph(StepBatch.from_columns(**COLUMNS), "shared")
