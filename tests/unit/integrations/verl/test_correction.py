"""Weights and figures against a batch that is computed by hand. Runs where verl is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from hgpo.config import Config
from hgpo.training.losses import importance_weights, sampler_mismatch

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from tensordict import TensorDict

from hgpo.integrations.verl.config import mapped_settings
from hgpo.integrations.verl.engine import corrected

# Two steps and a row of padding. Probabilities of the sampled tokens: the trainer's over the engine's.
TRAINER = [[0.3, 0.6, 0.5], [0.8]]
ENGINE = [[0.2, 0.1, 0.5], [0.4]]
WEIGHTS = [[1.5, 6.0, 1.0], [2.0]]  # their ratios, before the cap


def jagged(rows: list[list[float]], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def batch() -> TensorDict:
    mask = [[1.0] * len(row) for row in TRAINER] + [[0.0]]
    columns = {
        "response_mask": jagged(mask, torch.int64),
        "old_log_probs": jagged([*(np.log(row).tolist() for row in TRAINER), [0.0]]),
        "rollout_log_probs": jagged([*(np.log(row).tolist() for row in ENGINE), [-5.0]]),
    }
    return TensorDict(columns, batch_size=3)


def settings(**training: Any) -> dict[str, Any]:
    recipe = Config.model_validate(
        {"run": {"engine": "verl"}, "policy": {"model": "m"}, "training": {"recompute_log_probs": True, **training}}
    )
    mapped = mapped_settings(recipe, "m", recipe.run_directory)
    prefix = "algorithm.rollout_correction."
    return {name.removeprefix(prefix): one.value for name, one in mapped.items() if name.startswith(prefix)}


@pytest.mark.parametrize("cap", [2.0, 3.0])
def test_the_weight_of_a_token_is_the_ratio_of_its_probabilities_and_at_most_the_cap(cap: float) -> None:
    columns, _ = corrected(batch(), [False, False, True], settings(importance_cap=cap), cap)
    weights = columns["rollout_is_weights"].unbind()
    for found, expected, pair in zip(weights, WEIGHTS, zip(TRAINER, ENGINE, strict=True), strict=False):
        assert_allclose(found, np.minimum(expected, cap), rtol=1e-6)
        trainer_N, engine_N = (np.log(row).astype(np.float32) for row in pair)
        assert_allclose(found, importance_weights(trainer_N, engine_N, cap), rtol=1e-6)  # the built-in trainer's
    assert [row.tolist() for row in columns["response_mask"].unbind()] == [[1, 1, 1], [1], [0]]
    assert columns["response_mask"].dtype == torch.int64


def test_the_figures_are_the_built_in_trainers_of_the_steps_alone() -> None:
    _, figures = corrected(batch(), [False, False, True], settings(importance_cap=2.0), 2.0)
    trainer_N, engine_N = (np.log(np.concatenate([np.array(row) for row in rows])) for rows in (TRAINER, ENGINE))
    expected = sampler_mismatch(trainer_N.astype(np.float32), engine_N.astype(np.float32), 2.0)
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))
    assert figures["sampler_gap_mean"] == pytest.approx((np.log(1.5) + np.log(6) + 0 + np.log(2)) / 4)
    assert figures["sampler_effective_sample_size"] == pytest.approx(6.5**2 / (4 * (1.5**2 + 4 + 1 + 4)))
    assert figures["sampler_clipped_share"] == 0.25
    assert "rollout_corr/rollout_is_mean" in figures  # verl's own are there too


def test_without_a_cap_there_is_no_weight_and_the_gap_is_still_measured() -> None:
    columns, figures = corrected(batch(), [False, False, True], settings(importance_cap="none"), None)
    assert set(columns) == {"response_mask"}
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))
    assert "sampler_clipped_share" not in figures


def test_tokens_that_verl_rejects_are_masked_and_counted_in_the_gap() -> None:
    rejecting = {**settings(), "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_4.0"}
    columns, figures = corrected(batch(), [False, False, True], rejecting, 2.0)
    assert [row.tolist() for row in columns["response_mask"].unbind()] == [[1, 0, 1], [1], [0]]
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))
