"""What must hold for G2PO, GraphGPO and similarity grouping on every batch, checked on generated ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference_graph
from batches import Columns, columns, gammas, graph_columns, take
from example_counts import at_length
from hgpo.columns import FloatArray
from hgpo.estimators import Advantages, compute_advantages
from hgpo.estimators.similarity import similar_observations
from hgpo.estimators.transition_graph import goal_distances, transition_graph
from hgpo.steps import StepBatch

AT_LENGTH = at_length(600)
MODES = st.sampled_from(["mean_std_norm", "mean_norm"])
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0])

g2po_options = st.fixed_dictionaries({"mode": MODES, "step_advantage_w": WEIGHTS})
graphgpo_options = st.fixed_dictionaries(
    {
        "mode": MODES,
        "step_advantage_w": WEIGHTS,
        "episode_advantage_w": WEIGHTS,
        "distance_gamma": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "success_reward": st.sampled_from([1.0, 10.0]),
        "unreachable": st.sampled_from(["farthest", "zero"]),
        "normalize_distance": st.booleans(),
    }
)


@st.composite
def text_columns(draw: st.DrawFn) -> Columns:
    """Columns of a batch whose observations are short texts, some of them similar."""
    batch = draw(columns())
    number = random.Random(draw(st.integers(0, 2**32)))
    texts = ["".join(number.choice("abc") for _ in range(number.randint(0, 6))) for _ in range(8)]
    batch["observation"] = [number.choice(texts) for _ in batch["step"]]
    return batch


def advantages_of(batch: Columns, estimator: str, gamma: float = 0.95, **options: Any) -> Advantages:
    return compute_advantages(StepBatch.from_columns(**batch), estimator, gamma, **options)


def values_of(batch: Columns, estimator: str, gamma: float = 0.95, **options: Any) -> FloatArray:
    return advantages_of(batch, estimator, gamma, **options).values


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-8)


@AT_LENGTH
@given(graph_columns(), gammas, g2po_options)
def test_g2po_equals_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    result = advantages_of(batch, "g2po", gamma, **options)
    joint, whole, node, edge = reference_graph.g2po(batch, gamma, **options)
    close(result.values, joint)
    assert result.episode is not None
    close(result.episode.advantage, whole)
    close(result.levels[0].advantage, node)
    close(result.levels[1].advantage, edge)


@AT_LENGTH
@given(graph_columns(), graphgpo_options)
def test_graphgpo_equals_the_loops(batch: Columns, options: dict[str, Any]) -> None:
    close(values_of(batch, "graphgpo", **options), reference_graph.graphgpo(batch, options))


thresholds = st.sampled_from([0.3, 0.5, 0.75, 0.9, 1.0])


@given(text_columns(), gammas, MODES, WEIGHTS, thresholds)
def test_similar_gigpo_equals_the_loops(
    batch: Columns, gamma: float, mode: str, weight: float, threshold: float
) -> None:
    actual = values_of(batch, "gigpo", gamma, mode=mode, step_advantage_w=weight, similarity_threshold=threshold)
    close(actual, reference_graph.gigpo(batch, gamma, mode, weight, threshold))


@AT_LENGTH
@given(text_columns(), thresholds)
def test_similarity_equals_the_loops(batch: Columns, threshold: float) -> None:
    steps = StepBatch.from_columns(**batch)
    standing = [steps.labels["observation"][number] for number in similar_observations(steps, threshold)]
    assert standing == reference_graph.similar_observations(batch, threshold)


@given(text_columns(), MODES)
def test_a_ratio_of_1_is_equality(batch: Columns, mode: str) -> None:
    exact = values_of(batch, "gigpo", mode=mode)
    assert values_of(batch, "gigpo", mode=mode, similarity_threshold=1.0).tolist() == exact.tolist()


@pytest.mark.parametrize("ends", ["observed", "own"])
@given(batch=graph_columns())
def test_the_graph_equals_the_loops(ends: str, batch: Columns) -> None:
    steps = StepBatch.from_columns(**batch)
    graph = transition_graph(steps, ends)
    expected = reference_graph.edges(batch, ends)
    distance = reference_graph.distances(batch, ends)
    number: dict[Any, int] = {}
    for source, target, (here, there) in zip(graph.source_N, graph.target_N, expected, strict=True):
        assert number.setdefault(here, source) == source
        assert number.setdefault(there, target) == target
    assert len(number) == len(set(number.values())) == len(graph)
    actual = goal_distances(graph)
    assert {node: actual[at] for node, at in number.items()} == distance
    labels = steps.labels
    for node, at in number.items():
        assert labels["group"][graph.task_V[at]] == node[1]
        if node[0] == "end":
            [ended] = steps.trajectory[graph.target_N == at]
            assert (labels["trajectory"][ended], graph.goal_V[at], graph.observation_V[at]) == (node[2], node[3], -1)
        else:
            assert (labels["observation"][graph.observation_V[at]], graph.goal_V[at]) == (node[2], False)


EVERY: list[tuple[str, dict[str, Any]]] = [
    ("g2po", {}),
    ("g2po", {"mode": "mean_norm"}),
    ("graphgpo", {}),
    ("graphgpo", {"mode": "mean_norm", "unreachable": "zero", "normalize_distance": True}),
    ("gigpo", {"similarity_threshold": 0.75}),
]


@given(text_columns(), thresholds, st.integers(0, 2**32))
def test_rows_of_similar_texts_may_be_permuted(batch: Columns, threshold: float, seed: int) -> None:
    rows = list(range(len(batch["step"])))
    random.Random(seed).shuffle(rows)
    straight = values_of(batch, "gigpo", similarity_threshold=threshold)
    close(values_of(take(batch, rows), "gigpo", similarity_threshold=threshold), straight[rows])


@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
@given(batch=graph_columns(), reward=st.floats(-1e6, 1e6))
def test_equal_scores_without_discount_have_advantage_exactly_0(mode: str, batch: Columns, reward: float) -> None:
    """Every node of G2PO's graph has the one score there is, however many visits it is averaged over."""
    batch["reward"] = [reward if step == 0 else 0.0 for step in batch["step"]]
    batch["penalty"] = [0.0] * len(batch["step"])
    assert (values_of(batch, "g2po", gamma=1.0, mode=mode) == 0.0).all()


@pytest.mark.parametrize("options", [{}, {"mode": "mean_norm"}, {"unreachable": "zero"}, {"normalize_distance": True}])
@given(batch=graph_columns(), reward=st.floats(-1e6, 0.0))
def test_a_task_nobody_wins_has_graph_advantage_exactly_0(
    options: dict[str, Any], batch: Columns, reward: float
) -> None:
    batch["reward"] = [reward] * len(batch["step"])
    batch["penalty"] = [0.0] * len(batch["step"])
    batch.pop("success", None)
    (level,) = advantages_of(batch, "graphgpo", **options).levels
    assert (level.advantage == 0.0).all()


@pytest.mark.parametrize(("estimator", "options"), EVERY)
@given(batch=graph_columns(), gamma=gammas)
def test_the_advantage_is_the_weighted_sum_of_the_levels(
    estimator: str, options: dict[str, Any], batch: Columns, gamma: float
) -> None:
    result = advantages_of(batch, estimator, gamma, **options)
    assert result.episode is not None
    items = [result.episode, *result.levels]
    close(result.values, np.sum([item.weight * item.advantage for item in items], axis=0))
    assert [level.k for level in result.levels] == list(range(len(result.levels)))
    for item in items:
        assert (item.advantage[~item.used] == 0.0).all()
