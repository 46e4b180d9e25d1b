"""Values on the graph of a task's rollouts, against the linear equations that they solve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from batches import columns
from hgpo.estimators.transition_graph import transition_graph
from hgpo.steps import StepBatch
from true_gradient.contenders import CONTENDERS, GAMMA, certainty_equivalent, fixed_point, trajectories_acting


def two_rollouts() -> StepBatch:
    """a: hall, cellar, won. b: hall, yard, cut in the hall."""
    return StepBatch.from_columns(
        group=[0] * 4,
        trajectory=["a", "a", "b", "b"],
        step=[0, 1, 0, 1],
        observation=["hall", "cellar", "hall", "yard"],
        next_observation=["cellar", "end", "yard", "hall"],
        action=["down", "take", "out", "in"],
        reward=[0.0, 1.0, 0.0, 0.0],
        success=[True, True, False, False],
        truncated=[False, False, False, True],
        response_log_prob=[-0.7] * 4,
    )


def test_a_cut_rollout_goes_on_from_where_others_were() -> None:
    batch = two_rollouts()
    graph = transition_graph(batch)
    value_V = fixed_point(graph, batch.reward)
    hall = value_V[graph.source_N[0]]
    assert np.isclose(hall, GAMMA * (1.0 + GAMMA * hall) / 2)
    expected = [GAMMA - hall, 0.0, GAMMA * GAMMA * hall - hall, 0.0]
    np.testing.assert_allclose(certainty_equivalent(batch), expected, atol=1e-7)
    assert trajectories_acting(batch, graph)[graph.source_N].tolist() == [2, 1, 2, 1]


@given(columns())
def test_values_solve_their_equations(rows: dict[str, list[object]]) -> None:
    batch = StepBatch.from_columns(**rows)
    graph = transition_graph(batch)
    value_V = fixed_point(graph, batch.reward)
    for node in range(len(graph)):
        taken = np.flatnonzero(graph.source_N == node)
        target = (batch.reward[taken] + GAMMA * value_V[graph.target_N[taken]]).mean() if len(taken) else 0.0
        assert np.isclose(value_V[node], target, rtol=1e-6, atol=1e-6 * max(1.0, float(np.abs(batch.reward).max())))


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_gives_a_number_for_every_step(name: str) -> None:
    value_N = CONTENDERS[name](two_rollouts())
    assert value_N.shape == (4,)
    assert np.isfinite(value_N).all()
