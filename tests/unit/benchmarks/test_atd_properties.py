"""ATD: equal to the loops, and what must hold for every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import reference_atd
from batches import Columns, columns, gammas
from example_counts import at_length
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

AT_LENGTH = at_length(600)

options = st.fixed_dictionaries(
    {
        "lambda_min": st.sampled_from([0.0, 0.5, 1.0]),
        "trust": st.sampled_from([0.0, 1.0, 2.0]),
        "mode": st.sampled_from(["none", "batch_std"]),
        "history_length": st.integers(0, 3),
    }
)


@AT_LENGTH
@given(columns(), gammas, options)
def test_it_equals_the_loops(batch: Columns, gamma: float, chosen: dict[str, Any]) -> None:
    expected = reference_atd.atd(batch, gamma, chosen)
    actual = compute_advantages(StepBatch.from_columns(**batch), "atd:ATD", gamma, **chosen)
    np.testing.assert_allclose(actual.values, expected, rtol=1e-9, atol=1e-9)


@given(columns(), gammas)
def test_full_trust_in_the_own_return_is_gigpos_step_term(batch: Columns, gamma: float) -> None:
    """With lambda 1 everywhere Y is the return, so A is the step advantage without its std, also for penalties."""
    steps = StepBatch.from_columns(**batch)
    gigpo = compute_advantages(steps, "gigpo", gamma, mode="mean_norm")
    np.testing.assert_allclose(
        compute_advantages(steps, "atd:ATD", gamma, lambda_min=1.0).values, gigpo.levels[0].advantage, atol=1e-9
    )


@given(columns(), gammas, st.sampled_from([0.0, 0.7, 1.0]))
def test_without_trust_it_is_gae_with_the_means_of_observations_as_values(
    batch: Columns, gamma: float, share: float
) -> None:
    """GAGPO's definition."""
    batch["penalty"] = [0.0] * len(batch["step"])
    steps = StepBatch.from_columns(**batch)
    value = compute_advantages(steps, "gigpo", gamma).levels[0].mean
    gae = compute_advantages(StepBatch.from_columns(**batch, value=value.tolist()), "gae", gamma, gae_lambda=share)
    atd = compute_advantages(steps, "atd:ATD", gamma, lambda_min=share, trust=0.0)
    np.testing.assert_allclose(atd.values, gae.values, atol=1e-9)


@given(columns(), gammas, options)
def test_advantages_do_not_know_the_rows_order_or_the_tasks_names(
    batch: Columns, gamma: float, chosen: dict[str, Any]
) -> None:
    values = compute_advantages(StepBatch.from_columns(**batch), "atd:ATD", gamma, **chosen).values
    turned = {name: column[::-1] for name, column in batch.items()}
    turned["group"] = [f"another {name}" for name in turned["group"]]
    again = compute_advantages(StepBatch.from_columns(**turned), "atd:ATD", gamma, **chosen).values
    np.testing.assert_allclose(again[::-1], values, rtol=1e-9, atol=1e-9)
