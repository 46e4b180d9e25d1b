"""Soft groups by hand: which states match, what a step is compared with, and what figures say of it."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo import StepBatch, compute_advantages
from hgpo.estimators import parse_options
from hgpo.estimators.base import Advantages, Unused
from hgpo.estimators.diagnostics import LevelSummary, summarise_levels
from hgpo.returns import discounted_returns

LINE = {"match_threshold": 0.5, "match_by": "embedding"}
"""Points of a line: a distance of at most 1 is near, and the similarity at distance d is 1 - d^2 / 2."""


def line(places: list[float], rewards: list[float], **columns: Any) -> StepBatch:
    """One step of one trajectory at each place of the line."""
    count = len(places)
    given: dict[str, Any] = {"group": [0] * count, "trajectory": list(range(count)), "step": [0] * count} | columns
    return StepBatch.from_columns(
        **given, observation=list(range(count)), reward=rewards, embedding=[[place] for place in places]
    )


def level(batch: StepBatch, k: int = 0, **options: Any) -> Any:
    given = {"mode": "mean_norm", "history_length": 0, **LINE, **options}
    return compute_advantages(batch, "hgpo", gamma=1.0, **given).levels[k]


def test_what_is_near_is_compared() -> None:
    """At 0, .9, 1.8 with returns 3, 0, 0: the middle is near both ends, which are not near each other."""
    found = level(line([0.0, 0.9, 1.8], [3, 0, 0]))
    assert found.size.tolist() == [2, 3, 2]
    assert found.mean == pytest.approx([1.5, 1, 0])
    assert found.advantage == pytest.approx([1.5, -1, 0])
    assert found.std == pytest.approx([1.5, 2**0.5, 0])
    assert found.group.tolist() == [0, 1, 2]
    assert found.trajectories.tolist() == [2, 3, 2]
    assert found.name == "similar state (by embedding, at least 0.5)"


def test_a_common_offset_of_the_embeddings_does_not_matter() -> None:
    assert level(line([1e8, 1e8 + 0.9, 1e8 + 1.8], [3, 0, 0])).size.tolist() == [2, 3, 2]


def test_the_nearer_counts_more_with_epanechnikovs_kernel() -> None:
    """Weight 1 - d^2: .75 at .5. The mean at 0 is (3 + .75 * 0) / 1.75."""
    found = level(line([0.0, 0.5, 1.0], [3, 0, 6]), match_kernel="epanechnikov")
    assert found.size.tolist() == [2, 3, 2]  # at distance 1 the weight is 0
    assert found.mean == pytest.approx([3 / 1.75, 0.75 * 9 / 2.5, 6 / 1.75])
    unbiased = level(line([0.0, 0.5], [3, 0]), match_kernel="epanechnikov", ddof=1).std[0]
    mean, degrees = 3 / 1.75, 1.75 - (1 + 0.75**2) / 1.75
    assert unbiased == pytest.approx(((9 - 6 * mean + mean**2 + 0.75 * mean**2) / degrees) ** 0.5)


def test_the_others_mean_with_weights() -> None:
    found = level(line([0.0, 0.5], [3, 1]), match_kernel="epanechnikov", baseline="leave_one_out")
    assert found.advantage == pytest.approx([2, -2])


def test_the_own_trajectory_counts_unless_it_is_left_out() -> None:
    """Trajectory 0 passes 0 and .1, trajectory 1 passes .2."""
    batch = line([0.0, 0.1, 0.2], [1, 0, 0], trajectory=[0, 0, 1], step=[0, 1, 0])
    assert level(batch).size.tolist() == [3, 3, 3]
    left_out = level(batch, match_own_trajectory=False)
    assert left_out.size.tolist() == [2, 2, 3]
    assert left_out.mean == pytest.approx([0.5, 0, 1 / 3])
    assert left_out.used.all()


def test_equal_states_of_the_own_trajectory_stay() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=[0] * 3, step=[0, 1, 2], observation=["x", "x", "y"], reward=[0, 0, 1],
        embedding=[[0.0], [0.0], [0.1]],
    )  # fmt: skip
    found = level(batch, match_own_trajectory=False)
    assert found.size.tolist() == [2, 2, 1]
    assert found.unused.tolist() == [Unused.NO, Unused.NO, Unused.ALONE]


def test_a_step_compared_with_nothing_has_std_0() -> None:
    place = [0.65, 0.12, 0.65, 0.65, 0.47]
    batch = StepBatch.from_columns(
        group=[0] * 5, trajectory=[0] * 5, step=range(5), observation=place, reward=[2, 0, 2, 1, 1],
        embedding=np.array(place)[:, None],
    )  # fmt: skip
    options = {**LINE, "match_kernel": "epanechnikov", "match_own_trajectory": False}
    found = compute_advantages(batch, "hgpo", gamma=0.9, history_length=0, ddof=1, **options).levels[0]
    assert found.size.tolist() == [3, 1, 3, 3, 1]
    assert found.std[[1, 4]].tolist() == [0, 0]


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e8]))
def test_no_value_of_the_own_trajectory_leaves_an_error(seed: int, large: float) -> None:
    """Mean and std are those of the compared values alone, although other steps have much larger returns."""
    random = np.random.default_rng(seed)
    trajectory = np.sort(random.integers(0, 6, 24))
    place = random.choice([0.0, 0.3, 0.47, 0.9], 24)
    batch = StepBatch.from_columns(
        group=[0] * 24,
        trajectory=trajectory,
        step=np.arange(24) - np.searchsorted(trajectory, trajectory),
        observation=place,
        reward=random.integers(0, 3, 24) + large * (random.random(24) < 0.1),
        embedding=place[:, None],
    )
    found = level(batch, match_kernel="epanechnikov", match_own_trajectory=False, ddof=1)
    value, kernel = discounted_returns(batch, 1.0), np.maximum(1 - (place[:, None] - place) ** 2, 0)
    weight = kernel * ((trajectory[:, None] != trajectory) | (place[:, None] == place))
    for row, weight_row in enumerate(weight):
        total, mean = weight_row.sum(), np.average(value, weights=weight_row)
        degrees = total - (weight_row**2).sum() / total
        alone = np.count_nonzero(weight_row) == 1
        std = 0.0 if alone else (np.sum(weight_row * (value - mean) ** 2) / degrees) ** 0.5
        assert found.size[row] == np.count_nonzero(weight_row)
        assert (found.mean[row], found.std[row]) == pytest.approx((mean, std), rel=1e-9, abs=1e-12 + 1e-14 * large)


def test_all_states_of_a_history_must_be_similar() -> None:
    """Both end at 0; they come from 0 and .9, or from 0 and 5."""
    for before, size in ((0.9, 2), (5.0, 1)):
        batch = line([0.0, 0.0, before, 0.1], [0, 1, 0, 0], trajectory=[0, 0, 1, 1], step=[0, 1, 0, 1])
        found = level(batch, k=1, history_length=1)
        assert found.size[[1, 3]].tolist() == [size, size]
        similar = found.matches.similarity_E[found.matches.source_E != found.matches.target_E]
        assert 1 - 0.9**2 / 2 in similar.round(9) or size == 1  # the least similar of both states


def test_the_state_of_an_embedding_is_its_mean() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 3, trajectory=[0, 1, 2], step=[0] * 3, observation=["x", "x", "y"], reward=[0, 0, 1],
        embedding=np.array([[0.0], [1.0], [1.4]], dtype=np.float16),
    )  # fmt: skip
    assert level(batch).size.tolist() == [3, 3, 3]  # 0.5 and 1.4


def test_figures_of_what_was_compared() -> None:
    summary = summary_of(level_advantages(line([0.0, 0.9, 1.8], [3, 0, 0])))
    assert (summary.groups, summary.mean_size, summary.size_max, summary.usable_share) == (3, 7 / 3, 3, 1.0)
    assert summary.similar_share == pytest.approx(4 / 7)
    # T = 4 + 1 + 1; W = 1.5^2 + 1 + 0; E[W] = S^2 (1/2 + 2/3 + 1/2) with S^2 = 6 / 2
    assert summary.variance_explained == pytest.approx(1 - 3.25 / 6)
    assert summary.variance_explained_adjusted == pytest.approx(1 - 3.25 / 5)


def test_the_mean_of_a_trajectory_nearby_is_over_its_steps() -> None:
    batch = StepBatch.from_columns(
        group=[0] * 4, trajectory=[0, 0, 0, 1], step=[0, 1, 2, 0], observation=["x", "x", "y", "z"],
        reward=[1, 2, 6, 5], embedding=[[0.0], [0.0], [0.1], [0.2]],
    )  # fmt: skip
    found = level(batch)
    group, trajectory, mean = found.matches.visits(
        found.runs(), batch.trajectory[found.row_N], discounted_returns(batch, 1.0)[found.row_N]
    )
    assert (group.tolist(), trajectory.tolist()) == ([0, 0, 1, 1, 2, 2], [0, 1] * 3)
    assert mean == pytest.approx([(9 + 8 + 6) / 3, 5] * 3)


def test_states_that_differ_most_from_the_similar_ones_explain_nothing() -> None:
    """T = 1 + 4 + 1; W = 1.5^2 + 2^2 + 1.5^2, more than T."""
    assert summary_of(level_advantages(line([0.0, 0.9, 1.8], [0, 3, 0]))).variance_explained == 0.0


def level_advantages(batch: StepBatch, **options: Any) -> tuple[StepBatch, Advantages]:
    return batch, compute_advantages(batch, "hgpo", gamma=1.0, mode="mean_norm", history_length=0, **LINE, **options)


def summary_of(found: tuple[StepBatch, Advantages]) -> LevelSummary:
    return summarise_levels(*found).levels[0]


@given(st.lists(st.floats(0, 3), min_size=4, max_size=4, unique=True))
def test_chance_explains_nothing_once_adjusted(places: list[float]) -> None:
    """E[W] is the mean of W over all ways to deal the returns out, whatever is near what."""
    dealt = [summary_of(level_advantages(line(places, list(returns)))) for returns in permutations([0.0, 1, 1, 5])]
    shares = [one.variance_explained_adjusted for one in dealt]
    if None not in shares:
        assert math.fsum(share or 0.0 for share in shares) / len(shares) == pytest.approx(0, abs=1e-9)


def test_early_steps_without_a_context_are_left_out() -> None:
    batch = line([0.0, 0.0, 0.1, 0.1], [0, 1, 0, 0], trajectory=[0, 0, 1, 1], step=[0, 1, 0, 1], prompt=list("pqrs"))
    found = compute_advantages(batch, "hgpo", gamma=1.0, history_length=1, early="drop", **LINE)
    assert found.levels[1].size.tolist() == [0, 2, 0, 2]
    summary = summarise_levels(batch, found).levels[1]
    assert (summary.groups, summary.no_context_share) == (2, 0.5)
    assert (summary.variance_explained, summary.prompts_differ_steps) == (0.0, None)


def test_nested_td_learns_from_similar_states() -> None:
    """No state is met twice; the ones near 0 win if they go to the right."""
    batch = StepBatch.from_columns(
        group=[0] * 4, trajectory=[0, 1, 2, 3], step=[0] * 4, observation=[0, 1, 2, 3], action=["l", "r", "l", "r"],
        reward=[0, 1, 0, 1], success=[False, True, False, True], embedding=[[0.0], [0.1], [0.2], [9.0]],
    )  # fmt: skip
    plain: dict[str, Any] = {"history_length": 0, "action_power": 0, "difference_power": 1, "mode": "none"}
    found = compute_advantages(batch, "nested_td", **plain, **LINE)
    assert found.values == pytest.approx([-1 / 3, 2 / 3, -1 / 3, 0], abs=1e-4)
    assert not compute_advantages(batch, "nested_td", **plain).values.any()


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        ("hgpo", {"match_threshold": 0.0}, "match_threshold must be above 0 and at most 1"),
        ("gigpo", {"match_threshold": 1.5}, "match_threshold must be above 0 and at most 1"),
        ("nested_td", {"match_by": "meaning"}, "match_by must be one of text, embedding"),
        ("hgpo", {"match_kernel": "gauss"}, "match_kernel must be one of uniform, epanechnikov"),
        ("gigpo", {"match_own_trajectory": 1}, "match_own_trajectory must be True or False"),
        ("hgpo", {"match_threshold": 0.9, "context": "prompt"}, "set match_threshold = 1"),
        ("hgpo", {"match_threshold": 0.9, "weight_type": "pooled"}, "set match_threshold = 1"),
        ("hgpo", {"weight_type": "pooled", "baseline": "critic"}, "remove baseline='critic'"),
        ("gigpo", {"match_threshold": 0.9, "similarity_threshold": 0.9}, "leave one out"),
        ("nested_td", {"match_own_trajectory": False}, "unknown option"),
    ],
)
def test_options_that_cannot_be(estimator: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_options(estimator, **options)


def test_only_text_is_compared_as_text() -> None:
    batch = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[(1, 2)], reward=[0])
    with pytest.raises(ValueError, match="column 'observation', row 0: match_by='text' compares text, got tuple"):
        compute_advantages(batch, "gigpo", match_threshold=0.9)
