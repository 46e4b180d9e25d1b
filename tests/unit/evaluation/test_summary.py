from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hgpo.evaluation.summary import print_evaluation, read_summary, show_summary, write_summary
from hgpo.runs.folder import RunDirectory, RunDirectoryError, write_json
from hgpo.utils.progress import Reporter
from panels import panel

SUMMARY = {
    "estimator": "hgpo",
    "updates": 4,
    "seconds": 1.5,
    "success_before": 0.25,
    "success_after": 0.5,
    "gain": 0.25,
    "gain_interval": [0.1, 0.4],
    "tasks_evaluated": 8,
    "split": "held_out",
}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    write_json(run.summary, SUMMARY)
    return run


def shown(run: RunDirectory) -> str:
    text = StringIO()
    show_summary(run, Reporter(Console(file=text, width=200)))
    return text.getvalue()


def test_only_what_is_there_is_pointed_to(run: RunDirectory) -> None:
    text = shown(run)
    assert "25.0 % → 50.0 % (+25.0 points, 95 % CI +10.0 to +40.0; 8 tasks detect ≥ 25.0), 4 updates" in text
    assert "summary.json" in text
    assert "rollouts" not in text
    assert "hgpo inspect" not in text
    assert "--split" not in text  # other environments have other splits
    run.rollouts.mkdir()
    assert "rollouts/" in shown(run)
    assert f"hgpo inspect {run.path}" in shown(run)


def test_the_next_command_plays_a_policy_that_exists(run: RunDirectory) -> None:
    assert f"hgpo eval {run.path} --checkpoint start --seeds 1 2 3" in shown(run)
    run.checkpoints.mkdir()
    assert f"hgpo eval {run.path} --seeds 1 2 3" in shown(run)


def test_without_an_evaluation_before_there_is_no_gain(run: RunDirectory) -> None:
    evaluation = panel({"corridor": [1, 0]})
    write_summary(run, {"estimator": "hgpo", "updates": 4}, None, evaluation, seconds=1.0)
    summary = read_summary(run)
    assert [summary[key] for key in ("success_before", "gain", "gain_interval", "score_before")] == [None] * 4
    assert "held-out tasks of held_out: 50.0 %, 4 updates" in shown(run)


@pytest.mark.parametrize("other", [{"temperature": 1.0}, {"seeds": (1, 2)}, {"tasks_won": {"corridor/0": 1.0}}])
def test_evaluations_that_settings_changed_between_have_no_gain(run: RunDirectory, other: dict[str, Any]) -> None:
    before = panel({"corridor": [1, 0]})
    write_summary(run, {"estimator": "hgpo", "updates": 4}, before, replace(before, **other), seconds=1.0)
    summary = read_summary(run)
    assert (summary["success_before"], summary["gain"], summary["gain_interval"]) == (0.5, None, None)


@pytest.mark.parametrize("text", ["{", "[]", '{"gain": 1}', '{"estimator": 1}'])
def test_a_damaged_summary_is_named_with_the_remedy(run: RunDirectory, text: str) -> None:
    run.summary.write_text(text)
    problem = "(is not JSON|holds no object|is damaged: 'estimator': )"
    with pytest.raises(RunDirectoryError, match=rf"summary\.json.* {problem}.*; delete it and `hgpo train --resume"):
        read_summary(run)


def test_a_task_type_is_no_markup_and_cannot_act_on_the_terminal() -> None:
    evaluation = panel({"[/x]\x1b[31m": [1, 0]}, split="held[/out]")
    other = replace(evaluation, by_task_type={})
    text = StringIO()
    console = Console(file=text, width=200)
    print_evaluation(console, evaluation)
    print_evaluation(console, evaluation, other)
    Reporter(console).say("failed: [/y]\x1b[31m")
    assert text.getvalue().count("[/x]\N{REPLACEMENT CHARACTER}[31m") == 2
    assert "Success on held[/out]" in text.getvalue()
    assert "failed: [/y]\N{REPLACEMENT CHARACTER}[31m" in text.getvalue()
    assert "\x1b" not in text.getvalue()


def test_a_task_type_called_all_is_not_the_whole(run: RunDirectory) -> None:
    evaluation = panel({"all": [1, 1], "other": [0, 0]})
    text = StringIO()
    print_evaluation(Console(file=text, width=100), evaluation, panel({"all": [0, 1], "other": [0, 0]}))
    rows = [line.replace("│", " ").split()[:6] for line in text.getvalue().splitlines() if " all " in line]
    assert rows == [["all", "2", "50.0", "%", "100.0", "%"], ["all", "4", "25.0", "%", "50.0", "%"]]
