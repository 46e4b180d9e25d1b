from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corridor_runs import start_folder
from hgpo.agents import get_template
from hgpo.envs.base import Task
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import collect
from scripted_policy import ScriptedPolicy
from state_keys import key_figures, main, mean_of_others
from true_gradient.pools import PoolSettings, make_pool
from true_gradient.replay import replayed


class TwoRooms:
    """A start that leads to one of two rooms of the same text; only in the left one the second action wins."""

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.taken: list[str] = []
        return "start", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        over = len(self.taken) == 2
        return "room", float(over and self._left), over, False, self._info() | {"won": over and self._left}

    @property
    def _left(self) -> bool:
        return self.taken[0] == "left"

    def _info(self) -> dict[str, Any]:
        return {"won": False, "task": "leave", "admissible_commands": ["left", "right"], "state_key": str(self.taken)}


@pytest.fixture(scope="module")
def records() -> dict[str, list[StepRecord]]:
    policy = ScriptedPolicy(lambda prompt, rng: str(rng.choice(["left", "right"])))
    rules = RolloutRules(get_template("compact"), 2, 1.0)
    task = Task("t", "", TwoRooms)
    steps = collect([task], policy, rules, np.random.default_rng(0), group_size=200)
    found = replayed(steps, {"t": task}, ["observation", "simulator"], "observation")
    return {key: found.records(key) for key in found.before}


def test_a_text_that_two_rooms_share_merges_them(records: dict[str, list[StepRecord]]) -> None:
    found = key_figures(records)
    text, exact = found["observation"], found["simulator"]
    assert (text.states, exact.states) == (2, 3)
    assert text.trajectories == 200
    # pairs: 200 * 199 / 2 at the start, and as many in "room", half of which are of two rooms
    assert text.merged == pytest.approx(0.25, abs=0.01)
    assert (text.separated, exact.merged, exact.separated) == (0, 0, 0)
    assert text.alone == exact.alone == 0
    assert exact.predicted > text.predicted + 0.3
    assert text.commonest == ("start", 0.5)


def test_a_key_that_tells_more_than_the_state_separates(records: dict[str, list[StepRecord]]) -> None:
    each = [replace(step, observation=step.trajectory) for step in records["simulator"]]
    found = key_figures(records | {"trajectory": each})["trajectory"]
    assert found.alone == 1
    assert found.separated == 1
    assert found.predicted == pytest.approx(0)  # the mean of the task's others stands in


def test_the_mean_of_others_leaves_out_the_whole_trajectory() -> None:
    mean_N, others_N = mean_of_others(
        np.array([1.0, 3.0, 5.0, 7.0, 2.0]), np.array([0, 0, 0, 0, 1]), np.array([0, 0, 1, 2, 0])
    )
    assert mean_N.tolist() == [6, 6, 11 / 3, 3, 0]
    assert others_N.tolist() == [2, 2, 2, 2, 0]


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = start_folder(tmp_path).parent
    make_pool(tmp_path / "pool", PoolSettings(str(run), "start", tasks=1, rollouts=4))
    monkeypatch.setattr("sys.argv", ["state_keys.py", str(tmp_path / "pool")])
    with pytest.raises(ValueError, match="state_key"):  # the corridor has no exact state
        main()
