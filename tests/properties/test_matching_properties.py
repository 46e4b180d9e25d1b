"""Soft groups: equal to the loops over all pairs, exactly equality at threshold 1, and what holds for every batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference_matching
import reference_nested_td
from batches import Columns, columns, episodes, gammas, take
from example_counts import at_length
from hgpo.estimators import compute_advantages
from hgpo.estimators.neighbours import trigram_counts
from hgpo.steps import StepBatch

AT_LENGTH = at_length(400)
EXACT = [
    ("hgpo", {}),
    ("hgpo", {"preset": "verl-agent", "base_group": True, "context": "observation_action"}),
    ("gigpo", {}),
    ("nested_td", {}),
]
match_options = st.fixed_dictionaries(
    {
        "match_threshold": st.sampled_from([0.3, 0.7, 0.95]),
        "match_by": st.just("embedding"),
        "match_kernel": st.sampled_from(["uniform", "epanechnikov"]),
    }
)
nested_options = st.fixed_dictionaries(
    {
        "history_length": st.integers(0, 2),
        "shrinkage": st.sampled_from([0.0, 2.0]),
        "action_power": st.sampled_from([0.0, 0.5]),
        "difference_power": st.sampled_from([0.7, 1.0]),
        "bootstrap_truncated": st.booleans(),
    }
)
own_trajectory = st.fixed_dictionaries({"match_own_trajectory": st.booleans()})
level_options = st.fixed_dictionaries(
    {
        "history_length": st.integers(0, 3),
        "mode": st.sampled_from(["mean_std_norm", "mean_norm"]),
        "early": st.sampled_from(["drop", "truncate", "pad"]),
        "context": st.sampled_from(["observation", "observation_action"]),
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
        "ddof": st.sampled_from([0, 1]),
        "epsilon": st.just(0.1),
    }
)


@st.composite
def embedded(draw: st.DrawFn, batches: st.SearchStrategy[Columns]) -> Columns:
    """Batches with a point of the plane for each state, a little different at each of its steps."""
    batch = draw(batches)
    number = random.Random(draw(st.integers(0, 2**32)))
    point = {name: (number.random(), number.random()) for name in sorted(set(batch["observation"]))}
    batch["embedding"] = [
        [x + number.random() / 10, y + number.random() / 10] for x, y in map(point.__getitem__, batch["observation"])
    ]
    return batch


def result(batch: Columns, estimator: str, gamma: float = 0.95, **options: Any) -> Any:
    return compute_advantages(StepBatch.from_columns(**batch), estimator, gamma, **options)


@AT_LENGTH
@given(embedded(columns()), gammas, level_options, match_options, own_trajectory)
def test_levels_equal_the_loops(batch: Columns, gamma: float, chosen: Any, match: Any, own: Any) -> None:
    options = {**chosen, **match, **own}
    expected = reference_matching.step_levels(batch, gamma, options)
    actual = result(batch, "hgpo", gamma, **options)
    for level, of_step in zip(actual.levels, expected, strict=True):
        np.testing.assert_allclose(level.advantage, [one for one, _ in of_step], rtol=1e-7, atol=1e-7)
        assert level.size.tolist() == [size for _, size in of_step]
        assert level.used.tolist() == [size > 1 for _, size in of_step]
    shares = [(k + 1) / sum(range(1, len(expected) + 1)) for k in range(len(expected))]
    total = sum(share * np.array([one for one, _ in of]) for share, of in zip(shares, expected, strict=True))
    np.testing.assert_allclose(actual.values, total, rtol=1e-7, atol=1e-7)


@given(columns(), st.sampled_from([0.4, 0.8]))
def test_texts_equal_the_loops(batch: Columns, threshold: float) -> None:
    counts = {text: trigram_counts([text])[0].astype(np.float64) for text in set(batch["observation"])}
    texts = {text: count_D / np.linalg.norm(count_D) for text, count_D in counts.items()}
    options = {"history_length": 1, "mode": "mean_norm", "ddof": 0, "epsilon": 0.1, "match_threshold": threshold}
    expected = reference_matching.step_levels(batch, 0.95, options, texts)
    for level, of_step in zip(result(batch, "hgpo", **options).levels, expected, strict=True):
        np.testing.assert_allclose(level.advantage, [one for one, _ in of_step], rtol=1e-7, atol=1e-7)


@AT_LENGTH
@given(embedded(episodes()), st.sampled_from([0.0, 0.5, 0.95]), nested_options, match_options)
def test_nested_td_equals_the_loops(batch: Columns, gamma: float, chosen: Any, match: Any) -> None:
    options = {**chosen, **match, "mode": "none"}
    expected = np.array(reference_nested_td.nested_td(batch, gamma, options))
    actual = result(batch, "nested_td", gamma, **options).values
    far = np.abs(actual - expected) > 2e-3 * max(1.0, float(np.abs(expected).max()))
    # A difference at the bound of what counts as 0 may be 0 in one of the two.
    assert all(0.0 in pair for pair in zip(actual[far], expected[far], strict=True))


@pytest.mark.parametrize(("estimator", "options"), EXACT)
@given(batch=embedded(episodes()), own=st.booleans())
def test_threshold_1_is_equality(estimator: str, options: Any, batch: Columns, own: bool) -> None:
    """Bit for bit; and through the soft code, where no two states are similar, up to rounding."""
    match: dict[str, Any] = {"match_by": "embedding"} | (
        {} if estimator == "nested_td" else {"match_own_trajectory": own}
    )
    exact = result(batch, estimator, **options)
    assert result(batch, estimator, **options, **match).values.tolist() == exact.values.tolist()
    apart = {name: 10.0 * place for place, name in enumerate(sorted(set(batch["observation"])))}
    batch["embedding"] = [[apart[name]] for name in batch["observation"]]
    soft = result(batch, estimator, **options, **match, match_threshold=0.5)
    np.testing.assert_allclose(soft.values, exact.values, rtol=1e-6, atol=1e-6)
    for level, other in zip(soft.levels, exact.levels, strict=True):
        for name in ("group", "size", "trajectories", "used", "unused"):
            assert getattr(level, name).tolist() == getattr(other, name).tolist()
        for name in ("mean", "std", "weight"):
            np.testing.assert_allclose(getattr(level, name), getattr(other, name), atol=1e-9)


@pytest.mark.parametrize("estimator", ["hgpo", "gigpo", "nested_td"])
@given(batch=embedded(episodes()), match=match_options, seed=st.integers(0, 2**32))
def test_rows_may_be_permuted(estimator: str, batch: Columns, match: Any, seed: int) -> None:
    rows = list(range(len(batch["step"])))
    random.Random(seed).shuffle(rows)
    straight = result(batch, estimator, **match).values
    np.testing.assert_allclose(result(take(batch, rows), estimator, **match).values, straight[rows], atol=1e-6)


@given(embedded(columns()), match_options)
def test_equal_returns_have_advantage_exactly_0(batch: Columns, match: Any) -> None:
    batch["reward"], batch["penalty"] = [0.1 for _ in batch["step"]], [0.0 for _ in batch["step"]]
    assert not result(batch, "hgpo", gamma=0.0, **match).values.any()


@given(embedded(columns()), match_options)
def test_other_tasks_do_not_matter(batch: Columns, match: Any) -> None:
    rows = [row for row, task in enumerate(batch["group"]) if task == batch["group"][0]]
    whole = result(batch, "hgpo", **match).values
    np.testing.assert_allclose(result(take(batch, rows), "hgpo", **match).values, whole[rows], atol=1e-9)


@given(embedded(columns()), match_options)
def test_the_own_trajectory_is_left_out(batch: Columns, match: Any) -> None:
    """One trajectory for each task: nothing is compared but steps in equal states."""
    first = dict(zip(reversed(batch["group"]), reversed(batch["trajectory"]), strict=True))
    kept = [row for row, name in enumerate(batch["trajectory"]) if name == first[batch["group"][row]]]
    alone = take(batch, kept)
    soft = result(alone, "hgpo", **match, match_own_trajectory=False)
    np.testing.assert_allclose(soft.values, result(alone, "hgpo").values, atol=1e-6)
