"""Pooled weights and mixed effects: equal to the loops, and what must hold for every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reference_pooling
from batches import Columns, columns, gammas
from example_counts import at_length
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

AT_LENGTH = at_length(600)

shared = {
    "history_length": st.integers(0, 4),
    "mode": st.sampled_from(["mean_std_norm", "mean_norm"]),
    "early": st.sampled_from(["drop", "truncate", "pad"]),
}
pooled_options = st.fixed_dictionaries(
    {
        **shared,
        "context": st.sampled_from(["observation", "observation_action", "prompt"]),
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
        "ddof": st.sampled_from([0, 1]),
    }
)
mixed_options = st.fixed_dictionaries({**shared, "context": st.sampled_from(["observation", "observation_action"])})


@AT_LENGTH
@given(columns(), gammas, pooled_options)
def test_pooled_equals_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    expected, weights = reference_pooling.pooled(batch, gamma, options)
    actual = compute_advantages(StepBatch.from_columns(**batch), "hgpo", gamma, weight_type="pooled", **options)
    np.testing.assert_allclose(actual.values, expected, rtol=1e-7, atol=1e-7)
    for level, weight in zip(actual.levels, weights, strict=True):
        np.testing.assert_allclose(level.weight, weight, rtol=1e-7, atol=1e-7)
    total = sum(level.weight * level.advantage for level in actual.levels)
    np.testing.assert_allclose(actual.values, total, rtol=1e-9, atol=1e-9)


@AT_LENGTH
@given(columns(), gammas, mixed_options)
def test_mixed_effects_equal_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    expected = reference_pooling.mixed_effects(batch, gamma, options)
    actual = compute_advantages(StepBatch.from_columns(**batch), "mixed_effects", gamma, **options)
    np.testing.assert_allclose(actual.values, expected, rtol=1e-7, atol=1e-7)


@given(batch=columns(max_groups=4), options=pooled_options)
def test_a_left_out_baseline_does_not_know_the_step(batch: Columns, options: dict[str, Any]) -> None:
    """Changing what one trajectory earned changes R - baseline of its own steps by just that."""
    fixed = {"baseline": "leave_one_out", "mode": "mean_norm", "context": "observation"}
    options = {**options, **fixed}
    batch["observation"] = [f"{o}, turn {s}" for o, s in zip(batch["observation"], batch["step"], strict=True)]
    batch["penalty"] = [0.0] * len(batch["step"])
    before = compute_advantages(StepBatch.from_columns(**batch), "hgpo", 1.0, weight_type="pooled", **options)
    name = batch["trajectory"][0]
    rows = [row for row, other in enumerate(batch["trajectory"]) if other == name]
    last = max(rows, key=lambda row: batch["step"][row])
    batch["reward"][last] += 2.5
    after = compute_advantages(StepBatch.from_columns(**batch), "hgpo", 1.0, weight_type="pooled", **options)
    compared = [row for row in rows if before.levels[0].size[row] > 1]
    np.testing.assert_allclose(after.values[compared] - before.values[compared], 2.5, atol=1e-9)
