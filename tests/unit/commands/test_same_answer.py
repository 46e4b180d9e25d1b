"""`hgpo advantages` and `hgpo inspect` read equal batches from the same path, or report the same problem."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hgpo.estimators
import hgpo.report.report
from hgpo.cli.inspect import configure, report_of
from hgpo.cli.main import main
from hgpo.steps import StepBatch
from hgpo.storage.tables import write_table
from house import house, trajectory_lines, write_rows

RUN = Path(__file__).parents[2] / "data" / "run"
STEPS = len(house(1))


def parquet(path: Path, update: int) -> None:
    write_table(path, pa.Table.from_pylist(house(update)))


def dump(path: Path, update: int, **extra: Any) -> None:
    """As verl-agent writes it."""
    keys = {"group": "uid", "trajectory": "traj_uid", "step": "step_index", "observation": "anchor_obs"}
    keys |= {"prompt": "input", "response": "output", "reward": "step_reward"}
    rows = [{key: row[name] for name, key in keys.items()} for row in house(update)]
    write_rows(path, [{**row, "score": 1.0, "step": update, **extra} for row in rows])


def run_with_rollouts(path: Path) -> None:
    shutil.copytree(RUN, path)


def run_without_rollouts(path: Path) -> None:
    shutil.copytree(RUN, path, ignore=shutil.ignore_patterns("rollouts"))


def run_before_its_first_update(path: Path) -> None:
    path.mkdir()
    shutil.copy(RUN / "config.toml", path)


def run_whose_rollouts_were_deleted(path: Path) -> None:
    run_without_rollouts(path)
    (path / "rollouts").mkdir()


def run_with_advantages_in_it(path: Path) -> None:
    run_without_rollouts(path)
    parquet(path / "advantages.parquet", 1)


def metrics_alone(path: Path) -> None:
    write_rows(path / "metrics.jsonl", [{"update": 1, "success": 0.5}])
    write_rows(path / "metrics.superseded.jsonl", [{"update": 2, "success": 0.5}])


def metrics_file(path: Path) -> Path:
    metrics_alone(path)
    return path / "metrics.jsonl"


def folder_of_jsonl(path: Path) -> None:
    for update in (9, 10):
        write_rows(path / f"{update}.jsonl", house(update))


def mixed_folder(path: Path) -> None:
    parquet(path / "1.PARQUET", 1)
    write_rows(path / "2.jsonl", house(2))
    (path / "notes.txt").write_text("no rollouts")


def folder_of_dumps(path: Path) -> None:
    for update in (9, 10):
        dump(path / f"{update}.jsonl", update)


def dumps_beside_rollouts(path: Path) -> None:
    """Their columns differ: `won` is in one of them only."""
    write_table(path / "1.parquet", pa.Table.from_pylist(house(1)))
    dump(path / "2.jsonl", 2)


def one_file(path: Path) -> Path:
    return write_rows(path / "rollouts.JSONL", house(1))


def updates_with_equal_ids(path: Path) -> None:
    """Ids are unique within an update only, and files without numbers are counted."""
    for name in ("first", "second"):
        write_rows(path / f"{name}.jsonl", house(1))


def trajectories(path: Path) -> Path:
    return write_rows(path / "conversations.jsonl", trajectory_lines(house(1)))


def trajectories_in_parquet(path: Path) -> Path:
    path.mkdir()
    pq.write_table(pa.Table.from_pylist(trajectory_lines(house(1))), path / "conversations.parquet")
    return path / "conversations.parquet"


def validation_dumps(path: Path) -> None:
    for update in (5, 10):
        dump(path / f"{update}.jsonl", update, gts=None, reward=1.0, acc=True)


def empty_folder(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    """There is not even a folder."""


def other_file(path: Path) -> Path:
    path.mkdir()
    (path / "steps.csv").write_text("group,trajectory\n")
    return path / "steps.csv"


def empty_file(path: Path) -> None:
    write_rows(path / "1.jsonl", [])


def damaged_first_line(path: Path) -> None:
    write_rows(path / "1.jsonl", house(1))
    (path / "1.jsonl").write_text("half a line\n" + (path / "1.jsonl").read_text())


def damaged_first_line_of_a_dump(path: Path) -> None:
    dump(path / "1.jsonl", 1)
    (path / "1.jsonl").write_text("half a line\n" + (path / "1.jsonl").read_text())


def nothing_but_a_damaged_line(path: Path) -> Path:
    path.mkdir()
    (path / "1.jsonl").write_text('{"group": ')
    return path / "1.jsonl"


def other_version(path: Path) -> None:
    write_rows(path / "1.jsonl", [{**row, "schema_version": 7} for row in house(1)])


def other_version_of_parquet(path: Path) -> None:
    path.mkdir()
    table = pa.Table.from_pylist(house(1)).replace_schema_metadata({"hgpo_schema_version": "7"})
    pa.parquet.write_table(table, path / "1.parquet")


def cut_parquet(path: Path) -> None:
    parquet(path / "1.parquet", 1)
    (path / "1.parquet").write_bytes((path / "1.parquet").read_bytes()[:-50])


def missing_column(path: Path) -> Path:
    rows = [{name: value for name, value in row.items() if name != "observation"} for row in house(1)]
    return write_rows(path / "1.jsonl", rows)


def dump_without_observation(path: Path) -> None:
    dump(path / "1.jsonl", 1)
    (path / "1.jsonl").write_text((path / "1.jsonl").read_text().replace("anchor_obs", "room"))


def value_of_another_kind(path: Path) -> None:
    write_rows(
        path / "1.jsonl",
        [{**row, "step": str(row["step"]) if at == 4 else row["step"]} for at, row in enumerate(house(1))],
    )


def value_missing_in_a_row(path: Path) -> None:
    write_rows(path / "1.jsonl", [{**row, "won": None if at == 4 else row["won"]} for at, row in enumerate(house(1))])


def every_step_twice(path: Path) -> None:
    write_rows(path / "1.jsonl", house(1) * 2)


Kind = Callable[[Path], Path | None]
STORED_STEPS = 192
READABLE: dict[Kind, tuple[int, str]] = {
    run_with_rollouts: (STORED_STEPS, "hgpo"),
    folder_of_jsonl: (2 * STEPS, "hgpo"),
    mixed_folder: (2 * STEPS, "hgpo"),
    folder_of_dumps: (2 * STEPS, "verl"),
    dumps_beside_rollouts: (2 * STEPS, "auto"),
    one_file: (STEPS, "hgpo"),
    updates_with_equal_ids: (2 * STEPS, "hgpo"),
    trajectories: (STEPS, "trajectories"),
    trajectories_in_parquet: (STEPS, "trajectories"),
    validation_dumps: (2 * STEPS, "verl"),
}
REFUSED: dict[Kind, str] = {
    run_without_rollouts: "contains no rollouts (*.parquet, *.jsonl; *.json only if named); a run stores some after",
    run_before_its_first_update: "a run stores some after its first update",
    run_whose_rollouts_were_deleted: "a run stores some after its first update",
    run_with_advantages_in_it: "a run stores some after its first update",
    metrics_alone: "a run stores some after its first update",
    metrics_file: "a run stores some after its first update",
    empty_folder: "contains no rollouts",
    nothing: "no such file or folder",
    other_file: "the name of a rollout file ends in .parquet or .jsonl",
    empty_file: "1.jsonl: no rows",
    damaged_first_line: "1.jsonl line 1: not JSON",
    damaged_first_line_of_a_dump: "1.jsonl line 1: not JSON",
    nothing_but_a_damaged_line: "1.jsonl line 1: not JSON",
    other_version: "1.jsonl line 1: schema version 7; this release reads 1",
    other_version_of_parquet: "1.parquet: schema version 7; this release reads 1",
    cut_parquet: "1.parquet: no row can be read",
    missing_column: "1.jsonl: no column observation",
    dump_without_observation: "1.jsonl line 1: no observation",
    value_of_another_kind: "1.jsonl line 5: column 'step' is '0', which does not go with",
    value_missing_in_a_row: "1.jsonl line 5: column 'won': missing value, though other rows have one",
    every_step_twice: "1.jsonl line 12: column 'step': trajectory '1/a#0' already has step 0 in ",
}


def told_by_advantages(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """How many steps it takes, and why none."""
    status = main(["advantages", str(path), "--json", *words])
    printed = capsys.readouterr()
    if status == 0:
        return sum(batch["steps"] for batch in json.loads(printed.out)["batches"]), ""
    return 0, printed.err.removeprefix("hgpo advantages: ").strip()


def told_by_inspect(path: Path, *words: str) -> tuple[int, str]:
    """How many steps it takes, and what it says of the others."""
    parser = argparse.ArgumentParser()
    configure(parser)
    try:
        report = report_of(parser.parse_args([str(path), *words]))
    except ValueError as error:
        return 0, str(error)
    return report.steps, "\n".join(map(str, report.notices))


def made(kind: Kind, tmp_path: Path) -> Path:
    return kind(tmp_path / "input") or tmp_path / "input"


def batches_of(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[], tuple[int, str]]
) -> tuple[list[StepBatch], tuple[int, str]]:
    """The batches that `call` passes to the function `name` of a module, and what it returns."""
    taken: list[StepBatch] = []
    function = getattr(module, name)

    def record(steps: Any, *rest: Any, **options: Any) -> Any:
        taken.append(getattr(steps, "batch", steps))
        return function(steps, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, record)
        return taken, call()


@pytest.mark.parametrize("named", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", READABLE)
def test_both_read_equal_batches(
    kind: Kind, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One per file, the updates in order, whether the format is named or detected."""
    path, (steps, format) = made(kind, tmp_path), READABLE[kind]
    words = ("--format", format) if named else ()
    computed, told = batches_of(
        hgpo.estimators, "compute_advantages", monkeypatch, lambda: told_by_advantages(path, capsys, *words)
    )
    analysed, (shown, notices) = batches_of(
        hgpo.report.report, "analyse", monkeypatch, lambda: told_by_inspect(path, *words)
    )
    assert told == (steps, "")
    assert shown == steps
    assert notices.endswith("lacks the steps of update 3" if kind is run_with_rollouts else "")  # released so
    assert bool(notices) == (kind is run_with_rollouts)
    for one, other in zip(computed, analysed, strict=True):
        assert one.labels == other.labels
        for field in dataclasses.fields(StepBatch):
            column = getattr(one, field.name)
            assert field.name == "labels" or np.array_equal(column, getattr(other, field.name)), field.name


@pytest.mark.parametrize("kind", REFUSED)
def test_both_say_the_same_of_what_one_refuses(kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a damaged file `inspect` shows what is left; what it says is missing is what `advantages` stumbles over."""
    path = made(kind, tmp_path)
    steps, explanation = told_by_advantages(path, capsys)
    assert (steps, REFUSED[kind] in explanation) == (0, True), explanation
    named = explanation.replace(f"{path.parent}/" if path.is_file() else f"{path}/", "")
    _, told = told_by_inspect(path)
    assert named in told or explanation in told


@pytest.mark.parametrize(("kind", "format"), [(folder_of_jsonl, "verl"), (folder_of_dumps, "hgpo")])
def test_both_refuse_a_format_that_it_is_not(
    kind: Kind, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made(kind, tmp_path)
    steps, explanation = told_by_advantages(path, capsys, "--format", format)
    assert (steps, bool(explanation)) == (0, True)
    shown, told = told_by_inspect(path, "--format", format)
    assert shown == 0
    assert explanation.replace(f"{path}/", "").partition(": ")[2] in told


def test_both_take_columns_from_other_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = missing_column(tmp_path)
    words = ("--column", "observation=prompt")
    assert told_by_advantages(path, capsys, *words) == told_by_inspect(path, *words) == (STEPS, "")
    for wrong in ("room=prompt", "observation", "final_reward=reward"):
        _, explanation = told_by_advantages(path, capsys, "--column", wrong)
        assert explanation
        assert told_by_inspect(path, "--column", wrong) == (0, explanation)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [updates_with_equal_ids, validation_dumps, mixed_folder])
def test_both_commands_print_the_same_counts(kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')
    pytest.importorskip("vl_convert", reason='vl-convert-python is missing: pip install "hgpo[report]"')
    path = made(kind, tmp_path)
    assert main(["advantages", str(path)]) == 0
    assert capsys.readouterr().out.count("hgpo: 11 steps of 5 trajectories, 2 tasks\n") == 2
    assert main(["inspect", str(path), "-o", str(tmp_path / "report.html")]) == 0
    unit = "files" if kind is updates_with_equal_ids else "updates"  # the names of its files are no numbers
    assert f"22 steps of 4 tasks in 2 {unit}" in " ".join(capsys.readouterr().out.split())
