"""GAGPO, ECPO and PACE: equal to the loops, and where they meet the other estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_rivals
from batches import Columns, columns, gammas
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

QUICK = settings(max_examples=40, deadline=None)

grouped = {
    "mode": st.sampled_from(["mean_std_norm", "mean_norm"]),
    "step_advantage_w": st.sampled_from([0.0, 0.5, 1.0]),
}
OPTIONS = {
    "gagpo": st.fixed_dictionaries(
        {"gae_lambda": st.sampled_from([0.0, 0.5, 1.0]), "mode": st.sampled_from(["none", "batch_std"])}
    ),
    "ecpo": st.fixed_dictionaries(
        {**grouped, "prior": st.sampled_from([0.0, 1.0, 4.0]), "evidence": st.sampled_from([0.5, 2.0])}
    ),
    "pace": st.fixed_dictionaries(grouped),
}


def values_of(batch: Columns, name: str, gamma: float, **options: Any) -> np.ndarray:
    return compute_advantages(StepBatch.from_columns(**batch), name, gamma, **options).values


@pytest.mark.parametrize("name", OPTIONS)
@QUICK
@given(data=st.data(), batch=columns(), gamma=gammas)
def test_it_equals_the_loops(name: str, data: st.DataObject, batch: Columns, gamma: float) -> None:
    options = data.draw(OPTIONS[name])
    expected = reference_rivals.ESTIMATORS[name](batch, gamma, options)
    np.testing.assert_allclose(values_of(batch, name, gamma, **options), expected, rtol=1e-9, atol=1e-9)


@QUICK
@given(columns(), gammas)
def test_gagpo_is_gae_with_the_values_of_its_groups(batch: Columns, gamma: float) -> None:
    batch["penalty"] = [0.0] * len(batch["step"])
    value = compute_advantages(StepBatch.from_columns(**batch), "gigpo", gamma).levels[0].mean
    gae = values_of(batch | {"value": value.tolist()}, "gae", gamma, gae_lambda=0.7)
    np.testing.assert_allclose(values_of(batch, "gagpo", gamma, gae_lambda=0.7), gae, atol=1e-9)


@QUICK
@given(columns(), gammas, st.sampled_from([0.0, 0.3, 1.0]))
def test_atd_without_trust_is_gagpo(batch: Columns, gamma: float, share: float) -> None:
    atd = values_of(batch, "atd", gamma, lambda_min=share, trust=0.0)
    np.testing.assert_allclose(values_of(batch, "gagpo", gamma, gae_lambda=share), atd, atol=1e-9)


@QUICK
@given(columns(), gammas)
def test_pace_is_gigpo_where_no_action_repeats(batch: Columns, gamma: float) -> None:
    batch["action"] = list(range(len(batch["step"])))
    np.testing.assert_allclose(values_of(batch, "pace", gamma), values_of(batch, "gigpo", gamma), atol=1e-9)


def test_pace_and_ecpo_take_the_luck_off_an_action() -> None:
    """Two took and won 1 and 0, two left and won 0: taking is worth 1/2, leaving 0, the state 1/4."""
    batch = StepBatch.from_columns(
        group=["task"] * 4,
        trajectory=range(4),
        step=[0] * 4,
        observation=["here"] * 4,
        action=["take", "take", "leave", "leave"],
        reward=[1, 0, 0, 0],
    )
    pace = compute_advantages(batch, "pace", 1.0, mode="mean_norm").levels[0]
    np.testing.assert_allclose(pace.advantage, [0.25, 0.25, -0.25, -0.25])
    ecpo = compute_advantages(batch, "ecpo", 1.0, mode="mean_norm", prior=2.0, evidence=2.0).levels[0]
    np.testing.assert_allclose(ecpo.advantage, [0.125, 0.125, -0.125, -0.125])
    # B is 4/16, W is 2/4: a third of the spread is the actions'; each was taken twice.
    np.testing.assert_allclose(ecpo.weight, np.tanh(1.0) / 3.0)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("gagpo", "gae_lambda", 1.5),
        ("gagpo", "mode", "mean_norm"),
        ("ecpo", "evidence", 0),
        ("ecpo", "prior", -1),
        ("pace", "similarity_threshold", 0),
        ("pace", "mode", "none"),
    ],
)
def test_options_out_of_range(name: str, option: str, value: Any) -> None:
    batch = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=["x"], reward=[0], action=["y"])
    with pytest.raises(ValueError, match=option):
        compute_advantages(batch, name, **{option: value})
