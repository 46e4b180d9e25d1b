from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.runs.metrics import update_row
from hgpo.steps import StepBatch
from metric_keys import explained, general
from step_records import step_record

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
    metrics = summarise_levels(BATCH, advantages).flat()
    for level in advantages.levels:
        assert metrics[f"group_size_{level.k}"] == pytest.approx(level.size.mean(), rel=1e-15)
        assert metrics[f"group_usable_{level.k}"] == np.mean(level.used)
    assert metrics["advantage_deviation"] == advantages.values.std()
    assert metrics["level_prompts_differ_0"] == 3 / 6
    assert metrics["level_sign_agreement_1"] == 1.0
    assert "level_sign_agreement_0" not in metrics


@pytest.mark.parametrize("estimator", ["hgpo", "gigpo", "grpo", "reinforce"])
def test_every_key_is_explained(estimator: str) -> None:
    metrics = summarise_levels(BATCH, compute_advantages(BATCH, estimator)).flat()
    assert general(metrics) <= explained()


def row_of(peak_memory_gib: float | None = None) -> dict[str, Any]:
    steps = [
        step_record(
            step=step,
            prompt="1",
            admissible=None,
            truncated=step == 1,
            next_observation="hall",
            prompt_ids=np.zeros(30, dtype=np.int32),
            token_ids=np.zeros(10, dtype=np.int32),
        )
        for step in range(2)
    ]
    return update_row(
        update=3,
        played=steps,
        batch=BATCH,
        advantages=compute_advantages(BATCH, "hgpo"),
        figures={"loss": -0.5, "samples": 7},
        resampled_groups=1,
        tasks_drawn=48,
        seconds_collect=1.0,
        seconds_advantages=0.5,
        seconds_update=2.5,
        peak_memory_gib=peak_memory_gib,
    )


def test_the_row_of_an_update() -> None:
    row = row_of()
    assert row["update"] == 3
    assert (row["steps"], row["prompt_tokens"], row["response_tokens"]) == (2, 60, 20)
    assert row["tokens_per_second"] == 80 / 4.0
    assert (row["seconds_collect"], row["seconds_advantages"], row["seconds_update"]) == (1.0, 0.5, 2.5)
    assert (row["loss"], row["samples"], row["resampled_groups"], row["tasks_drawn"]) == (-0.5, 7, 1, 48)
    assert list(row)[:2] == ["update", "success"]
    assert general(row) <= explained()


def test_what_nobody_looked_at_is_left_out() -> None:
    assert "peak_memory_gib" not in row_of()
    assert row_of(peak_memory_gib=0.5)["peak_memory_gib"] == 0.5
