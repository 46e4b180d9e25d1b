"""docs/reporting.md: every command runs as written, on smaller trainings and on files of the stated names."""

from __future__ import annotations

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from audited import CleanLogs, episode_rows, task_ids
from hgpo.cli.main import main
from hgpo.envs.alfworld.tw_pddl.writing import generate_games
from hgpo.evaluation.manifests import manifests
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from house import write_rows
from panels import panel

PAGE = (Path(__file__).parents[2] / "docs" / "reporting.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^ {4,}(hgpo .*)$", PAGE.replace("\\\n", " "), re.MULTILINE)
]
SMALLER = {
    "environment.options.train_games": 20,
    "environment.options.valid_seen_games": 2,
    "environment.options.valid_unseen_games": 2,
    "warm_start.demonstrations": 8,
    "warm_start.probe_games": 4,
    "warm_start.max_updates": 2,
    "policy.tiny.hidden_size": 16,
    "policy.tiny.layers": 1,
    "rollout.tasks_per_update": 2,
    "rollout.group_size": 2,
}
AUDITED = {"results/": 1, "verl_validation/": 0, "trajectories.jsonl": 0, "runs/hgpo-1": 0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page names and no command of it writes."""
    monkeypatch.chdir(tmp_path)
    generate_games(tmp_path / "games", games={"train": 2, "valid_seen": 0, "valid_unseen": 3})
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "games"))
    tasks = task_ids(5)
    CleanLogs(tmp_path, random.Random(1), tasks).dumps_of_verl_agent()
    (tmp_path / "validation").rename(tmp_path / "verl_validation")
    rows = [{"gamefile": row.pop("task_id"), **row} for row in episode_rows(tasks, random.Random(1))]
    write_rows(tmp_path / "trajectories.jsonl", rows)
    (tmp_path / "valid_unseen.json").write_text(str(tasks).replace("'", '"'))
    won = dict.fromkeys([task.id for task in manifests()["alfworld-valid_seen-1"].tasks][1:], 1.0)
    for step in (50, 100):
        evaluation = panel({"put": [1.0]}, tasks_won=won, split="valid_seen")
        write_evaluation(tmp_path / f"results/step_{step}.json", StoredEvaluation(evaluation))
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_command_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [words[1] for words in COMMANDS]
    assert {*commands} == {"manifest", "train", "eval", "compare", "audit", "inspect", "export"}
    for _, command, *words in COMMANDS:
        changed = dict(SMALLER if command == "train" else {})
        if command == "train" and "training.updates=0" not in words:
            changed["training.updates"] = 1
        if command == "compare" and not (folder / "runs/grpo-1").exists():
            shutil.copytree(folder / "runs/gigpo-1", folder / "runs/grpo-1")
        status = main([command, *words, *(f"{name}={value}" for name, value in changed.items())])
        shown = capsys.readouterr()
        assert status == (AUDITED.get(words[0], 0) if command == "audit" else 0), (command, words, shown.out, shown.err)
    assert (folder / "alfworld-valid_unseen-1.json").exists()
    assert "booktabs" in (folder / "table.tex").read_text()
    assert (folder / "my-policy/README.md").exists()
