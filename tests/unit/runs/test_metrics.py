from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.runs.metrics import advantage_metrics
from hgpo.steps import StepBatch

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

BATCH = StepBatch.from_columns(
    group=["task"] * 7,
    trajectory=["a", "a", "b", "b", "c", "c", "c"],
    step=[0, 1, 0, 1, 0, 1, 2],
    observation=["hall", "kitchen", "hall", "kitchen", "hall", "garden", "kitchen"],
    prompt=["1", "2", "1", "2", "1", "2", "3"],
    reward=[0, 1, 0, 0, 0, 0, 1],
)


def test_the_keys_by_level() -> None:
    advantages = compute_advantages(BATCH, "hgpo", gamma=0.5, history_length=1)
    metrics = advantage_metrics(BATCH, advantages)
    for level in advantages.levels:
        assert metrics[f"group_size_{level.k}"] == pytest.approx(level.size.mean(), rel=1e-15)
        assert metrics[f"group_usable_{level.k}"] == np.mean(level.used)
    assert metrics["advantage_deviation"] == advantages.values.std()
    assert metrics["level_prompts_differ_0"] == 3 / 6
    assert metrics["level_sign_agreement_1"] == 1.0
    assert "level_sign_agreement_0" not in metrics


@pytest.mark.parametrize("estimator", ["hgpo", "gigpo", "grpo", "reinforce"])
def test_every_key_is_explained(estimator: str) -> None:
    metrics = advantage_metrics(BATCH, compute_advantages(BATCH, estimator))
    explained = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    assert {re.sub(r"_(\d+|episode)$", "_k", key) for key in metrics} <= explained
