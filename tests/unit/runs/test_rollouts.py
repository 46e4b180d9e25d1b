from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.estimators import compute_advantages
from hgpo.rollout.records import to_step_batch
from hgpo.runs.folder import RunDirectory
from hgpo.runs.metrics import store_rollouts
from step_records import step_record
from stored_rollouts import read_rollouts

STEPS = [
    step_record(
        trajectory=trajectory, reward=reward, won=reward > 0, score=reward, terminated=True, next_observation="next"
    )
    for trajectory, reward in (("a", 0.0), ("b", 10.0))
]


@pytest.mark.parametrize(("every", "stored"), [(0, []), (1, [1, 2, 3, 4]), (2, [2, 4])])
def test_steps_are_stored_with_their_advantages_as_often_as_asked(
    tmp_path: Path, every: int, stored: list[int]
) -> None:
    run = RunDirectory(tmp_path)
    batch = to_step_batch(STEPS)
    advantages = compute_advantages(batch, "grpo")
    for update in (1, 2, 3, 4):
        store_rollouts(run, update, STEPS, batch, advantages, every)
    assert [update for update in (1, 2, 3, 4) if run.rollout_file(update).exists()] == stored
    for update in stored:
        table = read_rollouts(run.rollout_file(update))
        assert table.column("advantage").to_pylist() == advantages.values.tolist()
        assert table.column("return").to_pylist() == [0.0, 10.0]
