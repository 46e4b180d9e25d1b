"""Episodes of a finished run: how many are played, and which counts make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hgpo.cli.main import main
from stored_rollouts import read_rollouts


def test_the_first_games_are_played_so_many_times(trained_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "rollouts.parquet"
    words = ["rollout", str(trained_run), "-o", str(output), "--games", "2", "--group-size", "3", "--quiet"]
    assert main(words) == 0
    table = read_rollouts(output)
    assert len(set(table.column("trajectory").to_pylist())) == 6
    assert set(table.column("task_id").to_pylist()) == {"train/1", "train/3"}


def test_it_takes_the_threads_of_the_run(three_threads: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "rollouts.parquet")
    assert main(["rollout", str(three_threads), "-o", output, "--games", "1", "--trust", "--quiet"]) == 0
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "steps.jsonl", "--games=0"], "--games 0: at least 1"),
        (["-o", "steps.jsonl", "--games=-190"], "--games -190: at least 1"),
        (["-o", "steps.jsonl", "--group-size=0"], "--group-size 0: at least 1"),
        (["-o", "steps.jsonl", "--seed=-1"], "--seed -1: give a whole number, 0 or more"),
        (["-o", "steps.csv"], "ends in .parquet or .jsonl"),
    ],
)
def test_a_mistake_is_named_before_anything_is_played(
    words: list[str],
    message: str,
    trained_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trained_run)
    assert main(["rollout", str(trained_run), *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(trained_run.glob("steps.*"))


@pytest.mark.parametrize("temperature", ["-1", "nan", "inf"])
def test_a_temperature_is_finite_and_not_negative(temperature: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["rollout", "run", "-o", "steps.jsonl", f"--temperature={temperature}"])
    assert "--temperature: not a finite number of at least 0" in capsys.readouterr().err
