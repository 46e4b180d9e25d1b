from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.runs.metrics import Seconds, UpdateFacts, advantage_metrics, update_row
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
    assert general(metrics) <= explained()


def facts(**changes: Any) -> UpdateFacts:
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
    plain = UpdateFacts(
        update=3,
        played=steps,
        batch=BATCH,
        advantages=compute_advantages(BATCH, "hgpo"),
        trained={"loss": -0.5, "samples": 7},
        resampled_groups=1,
        tasks_drawn=48,
        seconds=Seconds(collect=1.0, advantages=0.5, update=2.5),
    )
    return dataclasses.replace(plain, **changes)


def test_the_row_of_an_update() -> None:
    row = update_row(facts())
    assert row["update"] == 3
    assert (row["steps"], row["prompt_tokens"], row["response_tokens"]) == (2, 60, 20)
    assert row["tokens_per_second"] == 80 / 4.0
    assert (row["seconds_collect"], row["seconds_advantages"], row["seconds_update"]) == (1.0, 0.5, 2.5)
    assert (row["loss"], row["samples"], row["resampled_groups"], row["tasks_drawn"]) == (-0.5, 7, 1, 48)
    assert list(row)[:2] == ["update", "success"]
    assert general(row) <= explained()


def test_what_nobody_looked_at_is_left_out_and_what_one_engine_counts_is_added() -> None:
    assert "peak_memory_gib" not in update_row(facts())
    row = update_row(facts(peak_memory_gib=0.5, engine_counts={"lost_trajectories": 2}))
    assert (row["peak_memory_gib"], row["lost_trajectories"]) == (0.5, 2)
