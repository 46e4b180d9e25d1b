from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hgpo.runs.folder import RunDirectory, RunDirectoryError, write_json
from hgpo.runs.progress import Reporter
from hgpo.runs.summary import read_summary, show_summary

SUMMARY = {
    "estimator": "hgpo",
    "updates": 4,
    "seconds": 1.5,
    "success_before": 0.25,
    "success_after": 0.5,
    "gain": 0.25,
    "gain_interval": [0.1, 0.4],
    "episodes_evaluated": 8,
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
    assert "from 25.0 % to 50.0 %: +25.0 points [95 % +10.0 to +40.0], 4 updates" in text
    assert "summary.json" in text
    assert "rollouts" not in text
    assert "hgpo advantages" not in text
    assert "--split" not in text  # other environments have other splits
    run.rollouts.mkdir()
    assert "rollouts/" in shown(run)
    assert f"hgpo advantages {run.path}" in shown(run)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_summary_is_named_with_the_remedy(run: RunDirectory, text: str) -> None:
    run.summary.write_text(text)
    with pytest.raises(RunDirectoryError, match=r"summary\.json is damaged .*; delete it and `hgpo train --resume"):
        read_summary(run)
