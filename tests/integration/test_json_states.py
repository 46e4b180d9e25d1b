"""Training by JSON state keys: every answer of the environment has a new id, which is no part of the state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from corridor import Corridor, CorridorSuite
from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli.main import main
from hgpo.envs.base import Task
from hgpo.runs.folder import RunDirectory, read_metrics
from stored_rollouts import read_rollouts

pytestmark = pytest.mark.slow


REQUESTS = count()


class Answering(Corridor):
    """A corridor that numbers all its answers."""

    def _look(self) -> str:
        return f"{json.dumps({'request': next(REQUESTS)})} {super()._look()}"


class Suite(CorridorSuite):
    """Its tasks."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(task.id, task.kind, partial(Answering, task.make().goal)) for task in super().tasks(split)]


def run(folder: Path, state: str) -> RunDirectory:
    names = [f"environment.name={__name__}:Suite", f"rollout.state={state}", "rollout.group_size=7"]
    return train(
        recipe(folder, *names, "warm_start.max_updates=1", "training.updates=1", "evaluation.before=false"), quiet()
    )


def test_a_training_compares_states_without_their_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_text, by_json = run(tmp_path / "text", "observation"), run(tmp_path / "json", "json")
    [alone], [grouped] = read_metrics(by_text), read_metrics(by_json)
    assert alone["group_trajectories_0"] == 1
    assert grouped["group_trajectories_0"] > 3
    assert json.loads(read_rollouts(by_json.rollout_file(1)).column("observation")[0].as_py().partition(" you")[0])

    words = ["--option", "history_length=2", "-o", str(tmp_path / "steps.parquet")]
    assert main(["advantages", str(by_json.path), *words]) == 0
    assert "left out request: " in capsys.readouterr().out
    again = read_rollouts(tmp_path / "steps.parquet")
    stored = read_rollouts(by_json.rollout_file(1)).column("advantage").to_pylist()
    assert again.column("advantage").to_pylist() == pytest.approx(stored, abs=1e-12)
    assert set(again.column("state_key").to_pylist()) <= {
        f'{{"request": "…"}} you are at place {place}' for place in range(-9, 9)
    }

    assert main(["inspect", str(by_json.path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "state key json: " in out
    assert "left out request: " in out
