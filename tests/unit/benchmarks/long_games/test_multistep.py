"""The command, its file of finished cells, the tables, and their summary."""

from __future__ import annotations

import json
import multiprocessing
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import multistep
from hgpo.evaluation.statistics import student_quantile
from long_games.cells import Cell, CellFile, Settings, measured
from long_games.contenders import CONTENDERS
from long_games.families import FAMILIES, FIRST_REPORTED
from long_games.tables import ALL, complete, rows, summary

SETTINGS = Settings("choose", updates=2, batches=2)
SHORT = ["--updates", "2", "--batches", "2", "--families", "policy only", "--estimators", "nested_td", "gigpo"]


def choose(folder: Path, name: str, *more: str) -> str:
    """The summary of a short run."""
    output = folder / f"{name}.json"
    multistep.main(["choose", "--cells", str(folder / f"{name}.jsonl"), "--json", str(output), *SHORT, *more])
    return output.read_text()


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that was cut in the middle of a line keeps its whole ones, and they are not measured again."""
    whole = choose(tmp_path, "whole", "--instances", "2")
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 3 * 2 * 2
    edited = lines[1].replace(b'"success": [0.3', b'"success": [0.9')
    (tmp_path / "cut.jsonl").write_bytes(b"".join([lines[0], edited, *lines[2:6], lines[6][:20]]))
    capsys.readouterr()
    choose(tmp_path, "cut", "--instances", "2")
    assert "12 cells, 7 to measure" in capsys.readouterr().out
    again = (tmp_path / "cut.jsonl").read_bytes().splitlines(keepends=True)
    assert again[1] == edited
    assert again[2:] == lines[2:]
    (tmp_path / "cut.jsonl").write_bytes(b"".join([*lines[:6], lines[6][:20]]))
    assert choose(tmp_path, "cut", "--instances", "2") == whole
    assert json.loads(whole)["settings"]["purpose"] == "choose"


@pytest.mark.slow
def test_workers_measure_what_one_process_does(tmp_path: Path) -> None:
    assert choose(tmp_path, "two", "--instances", "2", "--workers", "2") == choose(tmp_path, "one", "--instances", "2")
    assert not multiprocessing.active_children()


def test_cells_of_other_settings_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    CellFile(path, SETTINGS).append(Cell("kl", "traps", 0, "nested_td"), {"success": [0.3]})
    assert CellFile(path, SETTINGS).done == {Cell("kl", "traps", 0, "nested_td"): {"success": [0.3]}}
    with pytest.raises(ValueError, match=r"measured with .*'purpose': 'choose'.* asked for .*'report'"):
        CellFile(path, Settings("report", updates=2, batches=2))
    path.write_text("a diary\n")
    with pytest.raises(ValueError, match="not a file of cells"):
        CellFile(path, SETTINGS)


def test_reporting_has_instances_of_its_own() -> None:
    options = multistep.parser().parse_args(["report", "--cells", "x", "--instances", "3"])
    numbers = {cell.instance for cell in multistep.wanted(FIRST_REPORTED, options)}
    assert numbers == {1000, 1001, 1002}
    chosen = multistep.parser().parse_args(["choose", "--cells", "x"])
    assert max(cell.instance for cell in multistep.wanted(0, chosen)) < FIRST_REPORTED


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --cells"),
        (["--cells", "a", "--read", "b"], "give --cells"),
        (["--cells", "a", "--estimators", "gigpo"], "must have nested_td"),
    ],
)
def test_arguments_that_mean_nothing(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        multistep.main(["report", *arguments])
    assert says in capsys.readouterr().err


def test_the_measures_of_a_cell() -> None:
    cosine = measured(Cell("cosine", "traps", 0, "nested_td"), SETTINGS)
    assert set(cosine) == {"batch", "mean"}
    for measure in ("kl", "adam"):
        assert len(measured(Cell(measure, "traps", 0, "nested_td"), SETTINGS)["success"]) == 3


def curve_of(points: float) -> dict[str, list[float]]:
    return {"success": [0.3, points / 100 - 0.1, points / 100 + 0.1]}


def test_tables_by_hand() -> None:
    """Differences are paired, instances without every estimator are left out, families count alike."""
    done = {}
    for n, family in enumerate(FAMILIES):
        for i, lead in enumerate((1.0, 3.0) if n else (1.0, 2.0, 3.0)):
            done[Cell("kl", family, i, "nested_td")] = curve_of(40 + 10 * i)
            done[Cell("kl", family, i, "gigpo")] = curve_of(40 + 10 * i + lead)
    done[Cell("kl", "traps", 7, "nested_td")] = curve_of(99)
    assert complete(done, "kl", "traps", ["nested_td", "gigpo"]) == [0, 1, 2]
    found = {(row["figure"], row["family"], row["estimator"]): row for row in rows(done, ["nested_td", "gigpo"])}
    traps, every = found["kl", "traps", "gigpo"], found["kl", ALL, "gigpo"]
    assert (traps["instances"], every["instances"]) == (3, 11)
    half = 4.303 / np.sqrt(3)  # Student's t of 2 degrees of freedom, standard deviation 1
    np.testing.assert_allclose(
        [traps[name] for name in ("mean", "difference", "low", "high")], [52, 2, 2 - half, 2 + half], rtol=0.05
    )
    error = np.sqrt(1 / 3 + 4 * 2 / 2) / 5
    freedom = (1 / 3 + 4) ** 2 / ((1 / 3) ** 2 / 2 + 4)
    np.testing.assert_allclose(
        [every["difference"], every["high"] - 2], [2, student_quantile(0.975, freedom) * error], rtol=1e-9
    )
    reference = found["kl", "traps", "nested_td"]
    assert (reference["difference"], reference["low"], reference["high"]) == (0, 0, 0)
    end = found["kl end", "traps", "gigpo"]
    np.testing.assert_allclose([end["mean"], end["difference"]], [62, 2])


@pytest.mark.slow
def test_intervals_hold_what_they_promise() -> None:
    """Of 100 tables of six instances a family with a true lead of 1, about 95 % hold it, in a family and over all."""
    number, held = np.random.default_rng(0), []
    for _ in range(100):
        done = {}
        for family, i in product(FAMILIES, range(6)):
            done[Cell("kl", family, i, "nested_td")] = curve_of(50)
            done[Cell("kl", family, i, "gigpo")] = curve_of(51 + number.normal())
        found = {(row["figure"], row["estimator"], row["family"]): row for row in rows(done, ["nested_td", "gigpo"])}
        leads = [found["kl", "gigpo", family] for family in ("traps", ALL)]
        held.append([row["low"] <= 1 <= row["high"] for row in leads])
    assert (np.abs(np.mean(held, axis=0) - 0.95) < 0.06).all()


@pytest.mark.slow
def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `report`")
    done = {
        Cell("kl", family, i, name): curve_of(50 + i) for family in FAMILIES for i in range(2) for name in CONTENDERS
    }
    found = summary(done, {}, CONTENDERS)
    multistep.draw(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="no finished learning curves of traps"):
        multistep.draw(summary({}, {}, CONTENDERS), tmp_path / "none.png")
