from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hgpo.agents import get_template
from hgpo.config import Config, dump_config, load_config
from hgpo.envs.base import Task
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import write_rollouts
from hgpo.rollout.runner import collect
from hgpo.runs.folder import RunDirectory
from hgpo.storage.reading import read_rollouts
from scripted_policy import ScriptedPolicy
from state_keys import KEYS, commonest, compare, main, show


@dataclass
class TwoRooms:
    """One text for both rooms; only the left one has a door to be opened."""

    left: bool = True

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        return "a hall", self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "wait":
            return "dark", 0.0, False, False, self._info()
        return "over", float(self.left), True, False, self._info() | {"won": self.left}

    def _info(self) -> dict[str, Any]:
        return {"won": False, "task": "leave", "admissible_commands": ["wait", "open door" if self.left else "knock"]}


def run_in(folder: Path, state: str) -> RunDirectory:
    run = RunDirectory(folder)
    config = Config.model_validate({"policy": {"model": "x"}, "rollout": {"state": state}})
    folder.mkdir()
    run.config.write_text(dump_config(config))

    def answer(prompt: str, rng: np.random.Generator) -> str:
        return "wait" if "past" not in prompt else "open door"

    tasks = [Task(f"t/{side}", "rooms", partial(TwoRooms, side)) for side in (True, False)]
    rules = RolloutRules(get_template("compact"), 2, 1.0, state=state)
    steps = collect(tasks, ScriptedPolicy(answer), rules, np.random.default_rng(0), group_size=2)
    one_task = [replace(step, group="one") for step in steps]
    run.rollout_file(1).parent.mkdir(parents=True)
    write_rollouts(run.rollout_file(1), one_task)
    return run


def test_commands_split_what_the_text_merges(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", KEYS[1])
    tables = [read_rollouts(run.rollout_file(1))]
    found = compare(tables, load_config(run.config))
    assert commonest(tables) == ("a hall", 0.5)
    assert found["observation"]["group_size_0"] == 4
    assert found["observation_and_commands"]["group_size_0"] == 2
    assert found["observation"]["level_variance_explained_0"] < 0.01
    assert found["observation_and_commands"]["level_variance_explained_0"] == pytest.approx(1.0)
    console = Console(record=True, width=120)
    show(found, console)
    assert "observation_and_commands" in console.export_text()


def test_a_run_that_stored_no_commands_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "run", "observation")
    monkeypatch.setattr("sys.argv", ["state_keys.py", str(run.path), "--updates", "1"])
    with pytest.raises(SystemExit, match=r"rollout.state=observation: it did not store commands"):
        main()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_in(tmp_path / "run", KEYS[1])
    monkeypatch.setattr("sys.argv", ["state_keys.py", str(run.path), "--updates", "1"])
    main()
    assert "most often observed, in 50% of the steps: 'a hall'" in capsys.readouterr().out
