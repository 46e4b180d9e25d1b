from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from hgpo.cli import main
from hgpo.commands.advantages import level_columns
from hgpo.estimators import compute_advantages
from hgpo.estimators.diagnostics import summarise
from hgpo.rollout.storage import read_table, step_batch_from_table

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


def test_json_is_the_summary_and_nothing_else(
    rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.parquet"
    advantages(*published(rollouts, "--json", "-o", output, "--option", "length_weight_alpha=inf"))
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert output.exists()
    assert printed["estimator"] == "hgpo"
    assert printed["options"] == ["length_weight_alpha=inf", "preset=verl-agent", "mode=mean_norm"]
    batch = step_batch_from_table(read_table(rollouts))
    computed = compute_advantages(
        batch, gamma=0.5, preset="verl-agent", mode="mean_norm", length_weight_alpha=float("inf")
    )
    expected = json.loads(json.dumps(summarise(batch, computed).to_dict()))
    assert {name: value for name, value in printed.items() if name in expected} == expected


def test_the_tables_fit_100_columns(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advantages(*published(rollouts, "--option", "history_length=4", "--option", "base_group=true"))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "…" not in printed
    assert "7 steps of 3 trajectories, 1 tasks" in printed
    level_1 = re.search(r"^ 1 +(.*)", printed, re.MULTILINE)
    assert level_1 is not None
    # Level 1 compares rows 1 and 3 of 7; rows 0, 2, 4 are too early. The other four: T = .6875, W = .5, E[W] = T / 3.
    usable, no_context, alone, dropped, _, explained, adjusted = re.split(r"  +", level_1[1])[:7]
    assert (usable, no_context, alone, dropped) == ("28.6 %", "42.9 %", "28.6 %", "0.0 %")
    assert (explained, adjusted) == ("27.3 %", "-118.2 %")


def test_an_estimator_without_levels_prints_its_spread(rollouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advantages(rollouts, "--estimator", "reinforce")
    assert capsys.readouterr().out.startswith("reinforce: 7 steps")


def test_level_columns_need_the_trajectories(rollouts: Path) -> None:
    level = compute_advantages(step_batch_from_table(read_table(rollouts))).levels[0]
    assert list(level_columns(level)) == [f"level_0_{column}" for column in COLUMNS]
    with pytest.raises(ValueError, match="batch_trajectory"):
        level_columns(replace(level, batch_trajectory=None))


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
    assert {row["update"] for row in rows(output)} == {3}
