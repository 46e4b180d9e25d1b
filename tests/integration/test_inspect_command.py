"""`hgpo inspect` as a person runs it: what it writes, what it says of damaged input, what it refuses to overwrite."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hgpo.cli.inspect import configure, training_of
from hgpo.cli.main import main
from hgpo.config import Config, dump_config
from hgpo.report.estimator_comparison import report_estimators
from hgpo.report.rendering import MARKER
from hgpo.storage.tables import write_table
from house import write_rows
from packed_reports import unpack

pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')
pytest.importorskip("vl_convert", reason='vl-convert-python is missing: pip install "hgpo[report]"')


def rows(update: int) -> list[dict[str, Any]]:
    return [
        {
            "group": f"{update}/task",
            "trajectory": f"{update}/task#{walker}",
            "step": step,
            "observation": room,
            "prompt": f"{walker % 2} {room}",
            "action": "go",
            "response": "go",
            "reward": float(step == 1 and walker > 1),
        }
        for walker in range(4)
        for step, room in enumerate(["hall", "kitchen"])
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with two updates and its settings: GiGPO, gamma 0.9."""
    path = tmp_path / "run"
    settings = {
        "advantage": {"estimator": "gigpo", "gamma": 0.9},
        "warm_start": {"enabled": True},
        "run": {"name": "run"},
    }
    path.mkdir()
    (path / "config.toml").write_text(dump_config(Config.model_validate(settings)), encoding="utf-8")
    for update in (1, 2):
        write_table(path / "rollouts" / f"{update:05d}.parquet", pa.Table.from_pylist(rows(update)))
    metrics = [{"update": update, "success": 0.5, "reward": 0.5, "episode_length": 2.0} for update in (1, 2)]
    write_rows(path / "metrics.jsonl", metrics)
    return path


def header_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    return unpack(text.split('<script type="text/plain" id="data">')[1].split("</script>")[0])[0]


@pytest.mark.slow
def test_a_run_is_written_into_its_folder_with_its_own_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "16 steps of 2 tasks in 2 updates" in " ".join(shown.split())
    assert "report.html" in shown
    page = run / "report.html"
    assert page.read_text(encoding="utf-8").startswith(MARKER)
    header = header_of(page)
    assert header["gamma"] == 0.9
    assert [e["key"] for e in header["estimators"] if e["trained"]] == ["gigpo"]
    assert main(["inspect", str(run), "--quiet"]) == 0  # a report may be written anew
    page.write_text("mine")
    assert main(["inspect", str(run)]) == 2
    assert "report.html exists already; choose another name or add --force" in capsys.readouterr().err
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "label", "trained"),
    [
        ([], "GiGPO", True),
        (["--estimator", "gigpo"], "GiGPO", True),
        (["--estimator", "rloo"], "RLOO", False),
        (["--option", "step_advantage_w=2"], "GiGPO (given options)", False),
        (["--gamma", "0.5"], "GiGPO", False),
    ],
)
def test_only_the_runs_own_settings_are_said_to_have_trained_it(
    run: Path, words: list[str], label: str, trained: bool
) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    training, _ = training_of(parser.parse_args([str(run), *words]))
    first = report_estimators(training)[0]
    assert (first.label, first.trained) == (label, trained)


def test_settings_may_be_given_where_there_is_no_run(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    words = [str(tmp_path), "--estimator", "hgpo", "--option", "history_length=1", "--gamma", "0.5"]
    training, notices = training_of(parser.parse_args(words))
    assert notices == []
    assert training is not None
    assert (training.estimator, dict(training.options), training.gamma) == ("hgpo", {"history_length": 1}, 0.5)


@pytest.mark.slow
def test_damaged_files_are_named_and_the_rest_is_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = run / "rollouts" / "00002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-50])
    (run / "metrics.jsonl").write_text('{"update": 1}\nhalf\n{"update": 2}\n')
    assert main(["inspect", str(run), "-o", str(run / "x.html")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "00002.parquet: no row can be read" in shown
    assert "metrics.jsonl line 2 is not JSON" in shown
    assert "8 steps of 1 task in 1 update" in shown
    notices = " ".join(header_of(run / "x.html")["notices"])
    assert "00002.parquet" in notices
    assert "metrics.jsonl line 2" in notices


@pytest.mark.slow
def test_settings_that_cannot_be_read_do_not_hide_the_rollouts(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "config.toml").write_text("[advantage\n")
    assert main(["inspect", str(run)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the defaults are assumed, and states are compared by the stored observation" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "no such file or folder: none"),
        (["none/steps.jsonl"], "no such file or folder: none/steps.jsonl"),
        (["."], "contains no rollouts"),
        (["empty.jsonl"], "empty.jsonl: no rows"),
        (["cut.jsonl"], "cut.jsonl line 1: not JSON"),
        (["other.jsonl"], "other.jsonl line 1: schema version 7; this release reads 1"),
        (["cut.jsonl", "--max-steps", "0"], "--max-steps must be at least 1"),
        (["cut.jsonl", "--option", "alpha=1"], "unknown option 'alpha'"),
        (["cut.jsonl", "--gamma", "2"], "gamma must be a number from 0 to 1"),
        (["cut.jsonl", "--column", "room"], "expected NAME=KEY, got 'room'"),
        (["cut.jsonl", "--column", "place=room"], "no column place is read from rollouts; columns: group, "),
    ],
)
def test_what_cannot_be_shown_is_said(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files" if words != ["."] else tmp_path)
    for name, text in (
        ("empty.jsonl", ""),
        ("cut.jsonl", '{"group": '),
        ("other.jsonl", json.dumps({**rows(1)[0], "schema_version": 7}) + "\n"),
    ):
        (tmp_path / "files" / name).write_text(text)
    assert main(["inspect", *words]) == 2
    assert message in capsys.readouterr().err
    assert not Path("none").exists()


@pytest.mark.slow
def test_figures_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run), "--figures", str(tmp_path / "out")]) == 0
    assert "figures in" in capsys.readouterr().out
    assert (tmp_path / "out" / "success.pdf").exists()
    assert not (run / "report.html").exists()


@pytest.mark.slow
def test_updates_without_stored_rollouts_still_have_figures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (run / "rollouts").iterdir():
        file.unlink()
    assert main(["inspect", str(run)]) == 0
    assert "contains no rollouts" in " ".join(capsys.readouterr().out.split())
    charts = {chart["id"]: chart["spec"]["data"]["values"] for chart in header_of(run / "report.html")["charts"]}
    assert [row["success"] for row in charts["success"]] == [0.5, 0.5]


def test_an_update_that_is_not_there_leaves_the_report_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run / "report.html"
    page.write_text(f"{MARKER} a good report")
    assert main(["inspect", str(run), "--update", "99", "2"]) == 2
    assert "contains no rollouts of update 99; it contains those of 1 to 2" in capsys.readouterr().err
    assert page.read_text() == f"{MARKER} a good report"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--figures", "r.toml"], "r.toml: File exists"),
        (["--figures", "r.toml/figures"], "r.toml/figures: Not a directory"),
        (["-o", "run"], "run is a folder; give the name of a file"),
        (["-o", "run", "--force"], "run is a folder"),
        (["-o", "r.toml/report.html"], "r.toml: File exists"),
    ],
)
def test_places_that_cannot_be_written_to_are_named(
    words: list[str], message: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parent)
    (run.parent / "r.toml").write_text("")
    assert main(["inspect", "run", *words]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def evaluations(run: Path) -> None:
    """Give a run the evaluations of the quickstart."""
    shutil.copytree(Path(__file__).parents[1] / "data/comparison/runs/quickstart/evaluations", run / "evaluations")


@pytest.mark.slow
def test_held_out_success_and_settings_are_in_the_report(run: Path) -> None:
    evaluations(run)
    assert main(["inspect", str(run), "--quiet"]) == 0
    facts = header_of(run / "report.html")["run"]
    assert [round(100 * point["success"]["mean"], 1) for point in facts["heldOut"]] == [32.0, 60.9]
    assert [round(100 * facts["gain"][name], 1) for name in ("mean", "detectable")] == [28.9, 10.0]
    gamma = next(setting for setting in facts["headlines"] if setting["name"] == "advantage.gamma")
    assert (gamma["value"], gamma["changed"]) == ("0.9", True)
