"""What must hold for every batch, checked on generated ones."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from batches import Columns, columns, gammas, graph_columns, hgpo_options, take
from example_counts import at_length
from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages
from hgpo.estimators.base import Level
from hgpo.steps import StepBatch

AT_LENGTH = at_length(600)
EVERY_ESTIMATOR: list[tuple[str, dict[str, Any]]] = [
    ("hgpo", {}),
    ("hgpo", {"preset": "verl-agent", "base_group": True}),
    ("gigpo", {}),
    ("grpo", {}),
    ("grpo", {"count": "step", "mode": "mean_norm"}),
    ("hgpo", {"weight_type": "pooled"}),
    ("hgpo", {"weight_type": "pooled", "baseline": "leave_one_out", "mode": "mean_norm"}),
    ("mixed_effects", {}),
    ("mixed_effects", {"mode": "mean_norm", "history_length": 4}),
    ("g2po", {}),
    ("g2po", {"mode": "mean_norm"}),
    ("graphgpo", {}),
    ("graphgpo", {"mode": "mean_norm", "unreachable": "zero", "normalize_distance": True}),
    ("gigpo", {"similarity_threshold": 0.75}),
    ("rloo", {}),
    ("reinforce", {"mode": "mean_std_norm"}),
]


def values_of(batch: Columns, estimator: str = "hgpo", gamma: float = 0.95, **options: Any) -> FloatArray:
    return compute_advantages(StepBatch.from_columns(**batch), estimator, gamma, **options).values


def members(level: Level) -> list[frozenset[int] | None]:
    group = level.group
    return [frozenset(np.flatnonzero(group == g).tolist()) if g >= 0 else None for g in group]


@AT_LENGTH
@given(columns(), gammas, hgpo_options)
def test_hgpo_equals_the_loops(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    expected, items = reference.hgpo(batch, gamma, options)
    actual = compute_advantages(StepBatch.from_columns(**batch), "hgpo", gamma, **options)
    np.testing.assert_allclose(actual.values, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(actual.returns, reference.returns(batch, gamma), rtol=1e-12, atol=1e-12)
    levels = ([actual.episode] if actual.episode else []) + list(actual.levels)
    assert len(levels) == len(items)
    for level, item in zip(levels, items, strict=True):
        assert members(level) == item.members
        assert level.used.tolist() == item.used
        assert level.size.tolist() == [len(group) if group else 0 for group in item.members]
        np.testing.assert_allclose(level.advantage, item.advantage, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(level.weight, item.weight, rtol=1e-9, atol=1e-9)


@given(columns(), gammas, st.sampled_from(["mean_std_norm", "mean_norm"]), st.sampled_from([0.0, 0.5, 1.0]))
def test_gigpo_equals_the_loops(batch: Columns, gamma: float, mode: str, weight: float) -> None:
    expected = reference.gigpo(batch, gamma, mode, weight)
    actual = values_of(batch, "gigpo", gamma, mode=mode, step_advantage_w=weight)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@given(columns(), st.sampled_from(["mean_std_norm", "mean_norm"]), st.sampled_from(["trajectory", "step"]))
def test_grpo_equals_the_loops(batch: Columns, mode: str, count: str) -> None:
    expected = reference.grpo(batch, mode, count)
    np.testing.assert_allclose(values_of(batch, "grpo", mode=mode, count=count), expected, rtol=1e-9, atol=1e-9)


@given(columns())
def test_rloo_equals_the_loops(batch: Columns) -> None:
    np.testing.assert_allclose(values_of(batch, "rloo"), reference.rloo(batch), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("estimator", "options"), EVERY_ESTIMATOR)
@given(batch=graph_columns(), seed=st.integers(0, 2**32))
def test_rows_may_be_permuted(estimator: str, options: dict[str, Any], batch: Columns, seed: int) -> None:
    rows = list(range(len(batch["step"])))
    random.Random(seed).shuffle(rows)
    straight = values_of(batch, estimator, **options)
    np.testing.assert_allclose(values_of(take(batch, rows), estimator, **options), straight[rows], atol=1e-7)


@pytest.mark.parametrize(("estimator", "options"), EVERY_ESTIMATOR)
@given(batch=graph_columns(), seed=st.integers(0, 2**32))
def test_names_do_not_matter(estimator: str, options: dict[str, Any], batch: Columns, seed: int) -> None:
    """Similar texts are told by their text, so there the observations keep their names."""
    number = random.Random(seed)
    renamed = dict(batch)
    shared = ("observation", "next_observation") if "next_observation" in batch else ("observation",)
    renamings = [("group",), ("trajectory",), ("action",), ("prompt",)]
    for names in renamings if "similarity_threshold" in options else [*renamings, shared]:
        labels = list(dict.fromkeys(value for name in names for value in batch[name] if value is not None))
        codes = dict(zip(labels, number.sample(range(10**6), len(labels)), strict=True))
        renamed |= {name: [codes.get(value) for value in batch[name]] for name in names}
    np.testing.assert_allclose(
        values_of(renamed, estimator, **options), values_of(batch, estimator, **options), atol=1e-7
    )


@pytest.mark.parametrize("context", ["observation", "observation_action"])
@pytest.mark.parametrize("early", ["drop", "truncate", "pad"])
@given(batch=columns())
def test_levels_are_nested(early: str, context: str, batch: Columns) -> None:
    levels = compute_advantages(StepBatch.from_columns(**batch), history_length=3, early=early, context=context).levels
    for coarse, fine in pairwise(levels):
        for outer, inner in zip(members(coarse), members(fine), strict=True):
            assert inner is None or (outer is not None and inner <= outer)


@pytest.mark.parametrize(("estimator", "options"), EVERY_ESTIMATOR)
@given(batch=graph_columns(max_groups=1, max_trajectories=1, max_steps=1))
def test_a_single_step_has_advantage_0(estimator: str, options: dict[str, Any], batch: Columns) -> None:
    assert (values_of(batch, estimator, **options) == 0.0).all()


@given(columns(), hgpo_options)
def test_a_singleton_level_has_advantage_0(batch: Columns, options: dict[str, Any]) -> None:
    for level in compute_advantages(StepBatch.from_columns(**batch), **options).levels:
        alone = level.size <= 1
        assert (level.advantage[alone] == 0.0).all()
        assert not level.used[alone].any()


@pytest.mark.parametrize(("estimator", "options"), [case for case in EVERY_ESTIMATOR if case[0] != "graphgpo"])
@given(batch=columns(), reward=st.floats(-1e6, 1e6), last=st.booleans())
def test_equal_returns_have_advantage_exactly_0(
    estimator: str, options: dict[str, Any], batch: Columns, reward: float, last: bool
) -> None:
    length = {name: len(reference.rows_of(batch, name)) for name in batch["trajectory"]}
    ends = [step == length[name] - 1 for step, name in zip(batch["step"], batch["trajectory"], strict=True)]
    batch["reward"] = [reward if end == last else 0.0 for end in ends] if last else [0.0] * len(ends)
    batch["penalty"] = [0.0] * len(ends)
    assert (values_of(batch, estimator, gamma=1.0, **options) == 0.0).all()


@given(columns(), hgpo_options)
def test_no_history_is_step_level_grouping(batch: Columns, options: dict[str, Any]) -> None:
    options |= {"history_length": 0, "base_group": False, "context": "observation", "missing": "renormalize"}
    result = compute_advantages(StepBatch.from_columns(**batch), **options)
    keys = list(zip(batch["group"], batch["observation"], strict=True))
    expected = [frozenset(row for row, other in enumerate(keys) if other == key) for key in keys]
    assert members(result.levels[0]) == expected
    # drop_zero would scale by 1 / (1 + 1e-6), so this uses "renormalize"
    np.testing.assert_allclose(result.values, result.levels[0].advantage, rtol=1e-12)


@given(columns(), hgpo_options)
def test_alpha_0_is_the_plain_mean_of_the_used_levels(batch: Columns, options: dict[str, Any]) -> None:
    options |= {"length_weight_alpha": 0.0, "missing": "renormalize", "base_group": False}
    result = compute_advantages(StepBatch.from_columns(**batch), **options)
    used = np.array([level.used for level in result.levels])
    advantage = np.array([level.advantage for level in result.levels])
    expected = (advantage * used).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
    np.testing.assert_allclose(result.values, expected, rtol=1e-9, atol=1e-12)
    tiny = compute_advantages(StepBatch.from_columns(**batch), **(options | {"length_weight_alpha": 1e-9}))
    np.testing.assert_allclose(tiny.values, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("alpha", [1e3, 1e9, float("inf")])
@given(batch=columns(), options=hgpo_options)
def test_large_alpha_is_the_longest_used_level(alpha: float, batch: Columns, options: dict[str, Any]) -> None:
    options |= {"length_weight_alpha": alpha, "missing": "renormalize", "base_group": False}
    result = compute_advantages(StepBatch.from_columns(**batch), **options)
    expected = np.zeros(len(batch["step"]))
    for level in result.levels:
        expected = np.where(level.used, level.advantage, expected)
    np.testing.assert_allclose(result.values, expected, rtol=1e-9, atol=1e-12)


@given(columns(), hgpo_options)
def test_leave_one_out_is_n_over_n_minus_1_times_the_deviation(batch: Columns, options: dict[str, Any]) -> None:
    options |= {"mode": "mean_norm", "baseline": "leave_one_out"}
    result = compute_advantages(StepBatch.from_columns(**batch), **options)
    for level in result.levels:
        expected = level.size / np.maximum(level.size - 1, 1) * (result.returns - level.mean)
        np.testing.assert_allclose(level.advantage[level.used], expected[level.used], rtol=1e-9, atol=1e-9)
        for row in np.flatnonzero(level.used):
            others = [at for at in np.flatnonzero(level.group == level.group[row]) if at != row]
            baseline = np.mean(result.returns[others])
            np.testing.assert_allclose(level.advantage[row], result.returns[row] - baseline, rtol=1e-9, atol=1e-9)


@given(columns(), gammas, hgpo_options)
def test_the_advantage_is_the_weighted_sum_of_the_levels(batch: Columns, gamma: float, options: dict[str, Any]) -> None:
    result = compute_advantages(StepBatch.from_columns(**batch), gamma=gamma, **options)
    items = [*result.levels, *([result.episode] if result.episode else [])]
    total = np.sum([item.weight * item.advantage for item in items], axis=0)
    np.testing.assert_allclose(result.values, total, rtol=1e-12, atol=1e-12)
    weights = np.sum([item.weight for item in items], axis=0)
    nothing = ~np.any([item.used for item in items], axis=0)
    expected = np.where(nothing & (options["missing"] != "zero"), 0.0, 1.0)
    np.testing.assert_allclose(weights, expected, atol=2e-6)


@given(columns(), st.floats(0.01, 100.0), st.floats(-50.0, 50.0))
def test_shifting_and_scaling_returns(batch: Columns, scale: float, shift: float) -> None:
    """mean_norm advantages scale with the reward and ignore a constant added to every return (gamma 0)."""
    changed = batch | {"reward": [scale * reward + shift for reward in batch["reward"]]}
    changed["penalty"] = [scale * penalty for penalty in batch["penalty"]]
    straight = values_of(batch, gamma=0.0, mode="mean_norm")
    np.testing.assert_allclose(values_of(changed, gamma=0.0, mode="mean_norm"), scale * straight, atol=1e-9)
