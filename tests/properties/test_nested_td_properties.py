"""NestedTD: equal to the loops, and what must hold for every batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reference_nested_td
from batches import Columns, episodes
from example_counts import at_length
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

AT_LENGTH = at_length(600)
TOLERANCE = 2e-3
"""Of advantages: the values are computed to 1e-5 of the largest, and the power steepens small differences."""

gammas = st.sampled_from([0.0, 0.5, 0.95])
options = st.fixed_dictionaries(
    {
        "history_length": st.integers(0, 2),
        "shrinkage": st.sampled_from([0.0, 1.0, 2.0]),
        "action_power": st.sampled_from([0.0, 0.5, 1.0]),
        "difference_power": st.sampled_from([0.7, 1.0]),
        "bootstrap_truncated": st.booleans(),
        "mode": st.sampled_from(["none", "batch_std"]),
    }
)


@AT_LENGTH
@given(episodes(), gammas, options)
def test_it_equals_the_loops(batch: Columns, gamma: float, chosen: dict[str, Any]) -> None:
    expected = reference_nested_td.nested_td(batch, gamma, chosen)
    actual = compute_advantages(StepBatch.from_columns(**batch), "nested_td", gamma, **chosen)
    scale = max(1.0, *(abs(value) for value in expected))
    near_zero = np.abs(actual.values - expected) > TOLERANCE * scale
    # A difference at the bound of what counts as 0 may be 0 in one of the two.
    assert all(
        0.0 in (one, other) for one, other in zip(actual.values[near_zero], np.array(expected)[near_zero], strict=True)
    )


@given(episodes(), st.sampled_from([0.5, 0.99]), options)
def test_rows_may_come_in_any_order(batch: Columns, gamma: float, chosen: dict[str, Any]) -> None:
    order = random.Random(0).sample(range(len(batch["step"])), len(batch["step"]))
    shuffled = {name: [column[row] for row in order] for name, column in batch.items()}
    one, other = (
        compute_advantages(StepBatch.from_columns(**b), "nested_td", gamma, **chosen) for b in (batch, shuffled)
    )
    np.testing.assert_allclose(other.values, one.values[order], atol=1e-6)
    assert np.isfinite(one.values).all()


@given(episodes(), gammas)
def test_equal_outcomes_teach_nothing(batch: Columns, gamma: float) -> None:
    batch |= {"reward": [0.0 for _ in batch["step"]], "penalty": [0.0 for _ in batch["step"]]}
    assert not compute_advantages(StepBatch.from_columns(**batch), "nested_td", gamma).values.any()


@given(episodes(), gammas, options)
def test_tasks_are_compared_with_themselves_only(batch: Columns, gamma: float, chosen: dict[str, Any]) -> None:
    """They have nothing in common but the ratio of variances and the std of all advantages."""
    chosen |= {"mode": "none", "shrinkage": 0.0}
    steps = StepBatch.from_columns(**batch)
    together = compute_advantages(steps, "nested_td", gamma, **chosen).values
    for name in set(batch["group"]):
        rows = [row for row, group in enumerate(batch["group"]) if group == name]
        alone = {column: [values[row] for row in rows] for column, values in batch.items()}
        found = compute_advantages(StepBatch.from_columns(**alone), "nested_td", gamma, **chosen).values
        np.testing.assert_allclose(together[rows], found, atol=1e-4)
