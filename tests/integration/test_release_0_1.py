"""A run that version 0.1.0 wrote, killed after checkpoint 2 of 4: it is continued, evaluated and looked at.

tests/data/release-0.1 is the run; release-0.1-finished has the rows and evaluations that 0.1.0 itself ended it with.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hgpo.cli import main
from hgpo.runs.folder import RunDirectory, read_json, read_metrics
from hgpo.runs.summary import read_summary
from hgpo.storage.reading import read_rollouts

DATA = Path(__file__).parents[1] / "data"
TIMED = ("seconds_collect", "seconds_advantages", "seconds_update", "tokens_per_second", "peak_memory_gib")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("runs") / "release-0.1"
    shutil.copytree(DATA / "release-0.1", folder)
    assert main(["train", "--resume", str(folder), "--trust", "--quiet"]) == 0
    return RunDirectory(folder)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "release-0.1", tmp_path / "run"))


def rounded_alike(found: Any, expected: Any) -> None:
    """Counts and texts are equal; fractions may differ in what another machine rounds differently."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            rounded_alike(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            rounded_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
    else:
        assert (found, type(found)) == (expected, type(expected))


def test_it_ends_with_the_rows_that_the_release_ended_with(resumed: RunDirectory) -> None:
    lines = (DATA / "release-0.1-finished" / "metrics.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in lines]
    found = read_metrics(resumed)
    assert [row["update"] for row in found] == [1, 2, 3, 4]
    for row, known in zip(found, expected, strict=True):
        assert list(row) == list(known)
        for name, value in known.items():
            if name not in TIMED:
                rounded_alike(row[name], value)


def test_the_row_of_the_update_that_was_made_again_is_kept_aside(resumed: RunDirectory) -> None:
    third = (DATA / "release-0.1" / "metrics.jsonl").read_text().splitlines()[2]
    aside = (resumed.path / "metrics.superseded.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in aside] == [json.loads(third)]


@pytest.mark.parametrize("name", ["before", "update-1", "update-2", "update-3", "after"])
def test_it_ends_with_the_evaluations_that_the_release_ended_with(resumed: RunDirectory, name: str) -> None:
    expected = json.loads((DATA / "release-0.1-finished" / "evaluations" / f"{name}.json").read_text())
    rounded_alike(read_json(resumed.evaluation(name)), expected)


def test_its_summary_and_rollouts_are_complete(resumed: RunDirectory) -> None:
    assert read_summary(resumed)["updates"] == 4
    assert sorted(path.name for path in resumed.checkpoints.iterdir()) == ["2", "4"]
    for update in (1, 2, 3, 4):
        assert read_rollouts(resumed.rollout_file(update)).num_rows > 0


def test_its_checkpoint_is_evaluated(copy: Path) -> None:
    assert main(["eval", str(copy), "--checkpoint", "2", "--trust", "--quiet"]) == 0
    found = read_json(copy / "evaluations" / "held_out-2-t0.4-s1.json")
    rounded_alike(found, json.loads((copy / "evaluations" / "update-2.json").read_text()))


def test_it_is_inspected(copy: Path) -> None:
    assert main(["inspect", str(copy)]) == 0
    assert (copy / "report.html").read_text(encoding="utf-8").startswith("<!")


def test_its_advantages_are_those_it_was_trained_with(copy: Path, tmp_path: Path) -> None:
    output = tmp_path / "advantages.parquet"
    words = ["advantages", str(copy / "rollouts"), "--option", "history_length=2", "-o", str(output)]
    assert main(words) == 0
    stored = [value for update in (1, 2) for value in column(copy / "rollouts" / f"{update:05d}.parquet")]
    assert column(output) == pytest.approx(stored, rel=1e-6, abs=1e-9)
    assert any(stored)


def column(path: Path) -> list[float]:
    values: list[float] = read_rollouts(path).column("advantage").to_pylist()
    return values
