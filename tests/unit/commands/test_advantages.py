from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.cli.main import main
from hgpo.estimators import compute_advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.storage.step_batches import step_batch_from_table
from house import write_rows
from stored_rollouts import read_rollouts

ROWS = [
    {"group": "task", "trajectory": name, "step": step, "observation": seen, "prompt": f"{step}: {seen}", "reward": won}
    for name, path, last in (
        ("a", ["hall", "kitchen"], 1.0),
        ("b", ["hall", "kitchen"], 0.0),
        ("c", ["hall", "garden", "kitchen"], 1.0),
    )
    for step, seen in enumerate(path)
    for won in [last if step == len(path) - 1 else 0.0]
]
COLUMNS = ("group", "size", "trajectories", "mean", "std", "advantage", "weight", "unused")


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return path


def advantages(*words: object) -> None:
    assert main(["advantages", *map(str, words)]) == 0


def complaint(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What the command says to a mistake in the input; an error that it does not expect would fail the test."""
    assert main(["advantages", *map(str, words)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize("name", ["out.parquet", "out.jsonl"])
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("files", [1, 2])
def test_it_says_what_it_wrote(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, as_json: bool, files: int
) -> None:
    folder, output = tmp_path / "folder", tmp_path / name
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.jsonl").write_bytes(rollouts.read_bytes())
    advantages(folder, "--option", "history_length=1", "-o", output, *["--json"] * as_json)
    printed = capsys.readouterr()
    (said,) = [line for line in (printed.err if as_json else printed.out).splitlines() if line.startswith("Wrote")]
    width = len({*rows(output)[0]} - {"schema_version"})
    assert said == (
        f"Wrote {output}: {7 * files} rows, {width} columns, 18 of them computed: "
        "advantage, return, level_0_…, level_1_…"
    )
    if as_json:
        json.loads(printed.out)


def published(*words: object) -> tuple[object, ...]:
    return (*words, "--gamma", 0.5, "--option", "preset=verl-agent", "--option", "mode=mean_norm")


def rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_every_column_of_every_level_is_written(rollouts: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"out{suffix}"
    options = ("--option", "history_length=1", "--option", "base_group=true", "-o", output)
    advantages(*published(rollouts, *options))
    written = rows(output)
    names = {f"{level}_{column}" for level in ("episode", "level_0", "level_1") for column in COLUMNS}
    assert names <= written[0].keys()
    assert [row["level_1_unused"] for row in written] == [
        *("no_context", None, "no_context", None, "no_context", "alone", "alone")
    ]
    assert [row["level_0_unused"] for row in written] == [None, None, None, None, "dropped", "alone", None]
    assert [row["level_1_mean"] for row in written] == [None, 0.5, None, 0.5, None, 0.5, 1.0]
    assert [row["level_0_trajectories"] for row in written] == [3, 3, 3, 3, 3, 1, 3]
    assert [row["level_1_size"] for row in written] == [0, 2, 0, 2, 0, 1, 1]
    assert {row["episode_unused"] for row in written} == {None}


def test_columns_of_an_earlier_call_do_not_stay(rollouts: Path, tmp_path: Path) -> None:
    deep, shallow = tmp_path / "deep.parquet", tmp_path / "shallow.parquet"
    advantages(rollouts, "--option", "history_length=3", "-o", deep)
    assert "level_3_size" in pq.read_schema(deep).names
    advantages(deep, "--estimator", "gigpo", "-o", shallow)
    levels = {name for name in pq.read_schema(shallow).names if name.startswith("level_")}
    assert levels == {f"level_0_{column}" for column in COLUMNS}


def test_columns_of_the_input_that_are_replaced_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = write_rows(tmp_path / "own.jsonl", [{**row, "advantage": 9.0, "return": 1.0} for row in ROWS])
    advantages(own, "-o", tmp_path / "out.jsonl")
    assert "level_2_…, in place of the input's advantage, return\n" in capsys.readouterr().out


def test_files_without_an_update_get_their_number(tmp_path: Path) -> None:
    write_rows(tmp_path / "runs" / "1.jsonl", ROWS)
    write_rows(tmp_path / "runs" / "2.jsonl", [{**row, "update": 7} for row in ROWS])
    advantages(tmp_path / "runs", "-o", tmp_path / "out.jsonl")
    assert [row["update"] for row in rows(tmp_path / "out.jsonl")] == [1] * len(ROWS) + [7] * len(ROWS)


@pytest.mark.parametrize(
    ("estimator", "options"), [("hgpo", ("history_length=1", "base_group=true")), ("reinforce", ()), ("gigpo", ())]
)
def test_every_file_is_a_batch_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], estimator: str, options: tuple[str, ...]
) -> None:
    """Both files have the same ids and different rewards; a joint batch would be rejected or give other advantages."""
    words = ["--estimator", estimator, *(word for option in options for word in ("--option", option))]
    second = [{**row, "reward": -2.0 * row["reward"], "penalty": 0.5 * row["step"]} for row in ROWS]
    for number, content in ((2, ROWS), (10, second)):
        write_rows(tmp_path / "runs" / f"{number}.jsonl", content)
        advantages(tmp_path / "runs" / f"{number}.jsonl", *words, "-o", tmp_path / f"{number}.parquet")
    advantages(tmp_path / "runs", *words, "-o", tmp_path / "both.parquet")
    capsys.readouterr()
    alone, both = [rows(tmp_path / f"{number}.parquet") for number in (2, 10)], rows(tmp_path / "both.parquet")
    assert [row["update"] for row in both] == [2] * len(ROWS) + [10] * len(ROWS)
    for name in alone[0][0].keys() - {"penalty"}:
        if not name.endswith("_group"):
            assert [row[name] for row in both] == [row[name] for part in alone for row in part], name
            continue
        groups = [{row[name] for row in both if row["update"] == update} - {-1} for update in (2, 10)]
        assert not groups[0] & groups[1]
        assert [len(part) for part in groups] == [len({row[name] for row in part} - {-1}) for part in alone]
    advantages(tmp_path / "runs", *words)
    printed = capsys.readouterr().out
    for update in (2, 10):
        assert f"update {update}, {estimator}: 7 steps of 3 trajectories, 1 task" in printed


def test_json_is_the_summary_and_nothing_else(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.parquet"
    advantages(*published(rollouts, "--json", "-o", output, "--option", "length_weight_alpha=inf"))
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert output.exists()
    assert printed["estimator"] == "hgpo"
    assert printed["options"] == ["length_weight_alpha=inf", "preset=verl-agent", "mode=mean_norm"]
    batch = step_batch_from_table(read_rollouts(rollouts))
    computed = compute_advantages(
        batch, gamma=0.5, preset="verl-agent", mode="mean_norm", length_weight_alpha=float("inf")
    )
    expected = json.loads(json.dumps(asdict(summarise_levels(batch, computed))))
    assert printed["batches"] == [{"update": None} | expected]  # a file of this name is of no update


def test_the_tables_fit_100_columns(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advantages(*published(rollouts, "--option", "history_length=4", "--option", "base_group=true"))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "…" not in printed
    assert "7 steps of 3 trajectories, 1 task\n" in printed
    level_1 = re.search(r"^ 1 +(.*)", printed, re.MULTILINE)
    assert level_1 is not None
    # Level 1 compares rows 1 and 3 of 7; rows 0, 2, 4 are too early. The other four: T = .6875, W = .5, and
    # E[W] = 7 / 24, half the mean squared difference between the trajectories.
    usable, no_context, alone, _, dropped, explained, adjusted = re.split(r"  +", level_1[1])[:7]
    assert (usable, no_context, alone, dropped) == ("28.6 %", "42.9 %", "28.6 %", "0.0 %")
    assert (explained, adjusted) == ("27.3 %", "-71.4 %")


def test_several_updates_name_the_episode_level_on_one_line(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    for update in (19, 20):
        (folder / f"{update}.jsonl").write_bytes(rollouts.read_bytes())
    advantages(folder, "--estimator", "gigpo")
    printed = capsys.readouterr().out
    assert len(re.findall(r"^ 20: episode ", printed, re.MULTILINE)) == 2
    assert "…" not in printed


def test_an_estimator_without_levels_prints_its_spread(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advantages(rollouts, "--estimator", "reinforce")
    assert capsys.readouterr().out.startswith("reinforce: 7 steps")


def test_a_rollout_dump_of_verl(tmp_path: Path) -> None:
    """The observation is not in it, so it is read from the prompt; its score is given to the last step."""
    unit = "12345678-1234-1234-1234-123456789abc"
    dump = tmp_path / "3.jsonl"
    lines = [
        {
            "input": row["observation"],
            "output": "go",
            "gts": None,
            "score": score,
            "step": 3,
            "uid": f"{unit}_{name}_{row['step']}",
        }
        for name, score in (("0", 1.0), ("1", 0.0))
        for row in ROWS[:2]
    ]
    dump.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    output = tmp_path / "out.jsonl"
    words = ("--column", "observation=input", "--column", "final_reward=score", "--option", "mode=mean_norm")
    advantages(dump, "--format", "verl", "--gamma", 1, *words, "-o", output)
    assert [row["advantage"] for row in rows(output)] == [0.5, 0.5, -0.5, -0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.jsonl: no rows"),
        ("[" * 100_000, "x.jsonl line 1: nested too deeply"),
        (({}, {"trajectory": 1}), "x.jsonl line 2: column 'trajectory' is 1, which does not go with 'a' in other rows"),
        (({"reward": "1"},), "x.jsonl line 1: column 'reward': expected a number, got str"),
        (
            ({}, {"trajectory": "b", "penalty": 0.5}),
            "x.jsonl line 1: column 'penalty': missing value, though other rows have one",
        ),
        (({"group": ["hall"]},), "x.jsonl line 1: column 'group': value of type list cannot be a key"),
        (({}, {}), "x.jsonl line 2: column 'step': trajectory 'a' already has step 0 in "),
    ],
)
def test_a_mistake_in_a_file_names_file_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: Any, message: str
) -> None:
    row = {"group": "g", "trajectory": "a", "step": 0, "observation": "s", "reward": 0.0}
    if isinstance(text, tuple):
        text = "\n".join(json.dumps(row | changes) for changes in text)
    (tmp_path / "x.jsonl").write_text(text)
    assert message in complaint(capsys, tmp_path / "x.jsonl")
    assert message in complaint(capsys, tmp_path)


@pytest.mark.parametrize("name", ["out.csv", "out", "out.json"])
def test_an_output_of_another_format_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    told = complaint(capsys, tmp_path / "none.jsonl", "-o", tmp_path / name)
    assert f"{name}: the name of a rollout file ends in .parquet or .jsonl" in told
    assert not list(tmp_path.iterdir())


def test_a_folder_and_an_existing_file_are_no_output(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.parquet").mkdir()
    assert "out.parquet is a folder" in complaint(capsys, rollouts, "--force", "-o", tmp_path / "out.parquet")
    assert "exists already" in complaint(capsys, rollouts, "-o", rollouts)


def test_times_have_no_form_in_json(rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed, output = tmp_path / "timed.parquet", tmp_path / "out.JSONL"
    times = pa.array(range(len(ROWS)), pa.timestamp("s"))
    pq.write_table(read_rollouts(rollouts).append_column("when", times), timed)
    assert "Object of type datetime is not JSON serializable; write .parquet" in complaint(capsys, timed, "-o", output)
    assert not output.exists()
    advantages(timed, "-o", tmp_path / "out.PARQUET")
    assert pq.read_table(tmp_path / "out.PARQUET")["when"].to_pylist() == times.to_pylist()
    advantages(rollouts, "-o", output)
    assert len(rows(output)) == len(ROWS)
