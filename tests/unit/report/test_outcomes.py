"""What a report says of steps of other trainers: who won, which update, whole ids, the same figures everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from hgpo.cli.main import main
from hgpo.estimators.diagnostics import LEVEL_HEADINGS
from hgpo.report.report import build_report
from hgpo.report.summary import print_report
from hgpo.storage.discover import find_step_files
from house import write_rows
from packed_reports import unpack


def rows(rewards: list[float], **more: list[object]) -> list[dict[str, object]]:
    """One task, one trajectory of two steps per reward."""
    return [
        {"group": "task", "trajectory": f"task/{place}", "step": step, "observation": f"room {step}"}
        | {"reward": reward * step}
        | {name: values[place] for name, values in more.items()}
        for place, reward in enumerate(rewards)
        for step in (0, 1)
    ]


def printed(path: Path) -> str:
    console = Console(width=200, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    print_report(console, build_report(path))
    return console.export_text()


WON = {
    "column": (rows([0.5, 0.5], success=[True, False]), [1, 0], ""),
    "column against rewards": (rows([5.0, -1.0], success=[False, True]), [0, 1], ""),
    "won": (rows([0.3, 0.3], won=[True, False]), [1, 0], ""),
    "zero or one": (rows([0.0, 1.0, 1.0]), [0, 1, 1], "counts as won if its rewards sum to 1"),
    "minus one or one": (rows([-1.0, 1.0]), [0, 1], "counts as won if its rewards sum to 1"),
    "partial scores": (rows([0.2, 0.7]), [2, 2], "which trajectories won is unknown"),
    "partial scores and one": (rows([0.2, 1.0]), [2, 2], "which trajectories won is unknown"),
    "points": (rows([3.0, 120.0, 0.0]), [2, 2, 2], "which trajectories won is unknown"),
    "penalties": (rows([-0.1, 0.9]), [2, 2], "which trajectories won is unknown"),
}


@pytest.mark.parametrize(("written", "won", "rule"), WON.values(), ids=WON)
def test_who_won_is_known_or_said_to_be_unknown(
    written: list[dict[str, object]], won: list[int], rule: str, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "steps.jsonl", written)
    report = build_report(path)
    assert report.samples[0].success_M.tolist() == won
    assert report.updates[0].success == (None if 2 in won else pytest.approx(sum(won) / len(won)))
    assert rule in report.won_rule
    assert bool(rule) == bool(report.won_rule)
    assert report.won_rule in printed(path)


UNITS = {
    "one file": (["gpt-4o-airline.jsonl"], ""),
    "a date": (["rollouts-20250101.jsonl"], ""),
    "one update of a run": (["00040.jsonl"], "update"),
    "a global step": (["global_step_40.jsonl"], "update"),
    "a series": (["step_10.jsonl", "step_20.jsonl"], "update"),
    "a dump of verl": (["7.jsonl"], "update"),
    "models": (["gpt-4.jsonl", "claude-3.jsonl"], "file"),
    "names": (["a.jsonl", "b.jsonl"], "file"),
}


SLOW = ("a date", "one update of a run", "a global step", "names")


@pytest.mark.parametrize(
    ("names", "unit"),
    [pytest.param(*case, marks=pytest.mark.slow if name in SLOW else []) for name, case in UNITS.items()],
    ids=UNITS,
)
def test_only_a_series_of_files_has_updates(
    names: list[str], unit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        write_rows(tmp_path / name, rows([0.0, 1.0]))
    path = tmp_path / names[0] if len(names) == 1 else tmp_path
    assert {file.unit for file in find_step_files(path)} == {unit}
    assert main(["inspect", str(path), "-o", str(tmp_path / "report.html")]) == 0
    out = " ".join(capsys.readouterr().out.split()).replace(str(tmp_path), "")
    assert ("update" in out) == (unit == "update")
    assert ("1 file" in out or "2 files" in out) == (unit == "file")
    assert main(["advantages", str(path)]) == 0
    assert ("update" in capsys.readouterr().out) == (unit == "update" and len(names) > 1)


def test_every_figure_has_one_heading_in_commands_page_and_docs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "steps.jsonl", rows([0.0, 1.0, 0.0], prompt=["p", "q", "r"]))
    assert main(["advantages", str(path), "--json"]) == 0
    levels = json.loads(capsys.readouterr().out)["batches"][0]["levels"]
    assert main(["inspect", str(path), "--estimator", "hgpo"]) == 0
    capsys.readouterr()
    page = (tmp_path / "steps.report.html").read_text(encoding="utf-8")
    header, _ = unpack(page.partition('id="data">')[2].partition("<")[0])
    assert header["updates"][0]["summary"]["levels"] == levels
    assert [name for _, name, _ in header["levelFigures"]] == list(LEVEL_HEADINGS)
    docs = (Path(__file__).parents[3] / "docs/inspect.md").read_text(encoding="utf-8")
    for name, heading in LEVEL_HEADINGS.items():
        assert name in levels[0]
        assert f"`{name}` ({' '.join(heading.split())})" in docs
    assert main(["advantages", str(path)]) == 0
    table = capsys.readouterr().out
    for heading in LEVEL_HEADINGS.values():
        assert heading.rpartition(" ")[2] in table
