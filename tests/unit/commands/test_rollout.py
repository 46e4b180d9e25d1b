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


@pytest.mark.parametrize(("option", "value"), [("--games", "0"), ("--games", "-190"), ("--group-size", "0")])
def test_a_count_that_plays_nothing_is_refused(
    option: str, value: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rollouts.parquet"
    assert main(["rollout", str(trained_run), "-o", str(output), f"{option}={value}"]) == 2
    assert f"{option} {value}: at least 1" in capsys.readouterr().err
    assert not output.exists()


def test_a_name_that_no_reader_takes_is_refused_before_anything_is_played(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rollouts.csv"
    assert main(["rollout", str(trained_run), "-o", str(output)]) == 2
    assert "ends in .parquet or .jsonl" in capsys.readouterr().err
    assert not output.exists()
