from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hgpo.grouping import Runs, group_steps
from hgpo.steps import StepBatch
from stored_states import level_figures, main, removed_error


def test_by_hand() -> None:
    """Outcomes 0, 0, 1, 1: the others of the task are off by 2/3; one group of the first two, with 3 and 1 steps."""
    steps_GM = np.array([[3, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 5]])
    removed, error, matched = removed_error(np.array([[0.0, 0, 1, 1]]), steps_GM)
    np.testing.assert_allclose(removed, [4 * 4 / 9])
    np.testing.assert_allclose(error, [11 * 4 / 9])
    np.testing.assert_allclose(matched, [4 * 4 / 9])


def batch(informs: bool, tasks: int = 30) -> StepBatch:
    """Four rollouts with the outcomes 0, 0, 1, 1 and one step in one of two rooms, which tell it or not."""
    rng = np.random.default_rng(3)
    outcome = np.tile([0.0, 0.0, 1.0, 1.0], tasks)
    room = outcome if informs else rng.integers(0, 2, len(outcome))
    count = len(outcome)
    return StepBatch.from_columns(
        group=np.arange(count) // 4, trajectory=np.arange(count), step=[0] * count, observation=room, reward=outcome
    )


@pytest.mark.parametrize("informs", [True, False])
def test_what_groups_explain_is_found_and_chance_is_not(informs: bool) -> None:
    steps = batch(informs)
    groups = group_steps(steps, 0)
    group_N = np.zeros(len(steps), dtype=np.int64)
    group_N[groups.row_N] = Runs.from_starts(groups.starts[0]).run_N
    found = level_figures(steps, group_N, np.random.default_rng(0))
    adjusted = (found.removed_J - found.chance_J).sum() / found.error_J.sum()
    if informs:
        assert found.matched == found.usable == 1.0
        assert adjusted > 0.9
        assert found.p < 0.001
    else:
        assert found.removed_J.sum() < 0  # the mean of few predicts worse than that of all
        assert abs(adjusted) < 0.3
        assert found.p > 0.05


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "bye"}]
    lines = [
        {"task_id": task, "trial": trial, "reward": float(trial), "traj": talk}
        for task in range(2)
        for trial in range(2)
    ]
    (tmp_path / "talks.json").write_text(json.dumps(lines))
    monkeypatch.setattr("sys.argv", ["stored_states.py", str(tmp_path / "talks.json"), "--state", "observation"])
    main()
    out = capsys.readouterr().out
    assert "4 steps, 2 tasks" in out
    assert "100.0 %" in out
