"""Tables as other libraries and trainers write them: pandas, polars, datasets, DuckDB, verl."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.cli.main import main
from hgpo.columns import ColumnError
from hgpo.steps import StepBatch
from hgpo.storage.step_batches import step_batch_from_table
from house import write_rows

GROUP = ["a", "a", "a", "a"]
TRAJECTORY = [0, 0, 1, 1]
STEP = [0, 1, 0, 1]
ROOM = ["hall", "kitchen", "hall", "cellar"]
REWARD = [0.0, 1.0, 0.0, 0.0]
EXPECTED = [0.475, 0.0, -0.475, 0.0]
"""Advantages of HGPO with mode mean_norm; only the hall occurs twice."""


def table(**columns: Any) -> pa.Table:
    usual = {"group": GROUP, "trajectory": TRAJECTORY, "step": STEP, "observation": ROOM, "reward": REWARD}
    return pa.table({**usual, **columns})


def advantages(tmp_path: Path, *words: str, name: str = "steps.parquet") -> list[float]:
    out = tmp_path / "out.parquet"
    command = ["advantages", str(tmp_path / name), "--option", "mode=mean_norm", "-o", str(out), "--force", *words]
    assert main(command) == 0
    return [round(value, 6) for value in pq.read_table(out)["advantage"].to_pylist()]


ROOMS = [[room, "north"] for room in ROOM]
STRUCTS = [{"room": room, "doors": [1, 2]} for room in ROOM]
COLUMNS = {
    "string_view, of polars (always read)": {"observation": pa.array(ROOM, pa.string_view())},
    "large_string (always read)": {"observation": pa.array(ROOM, pa.large_string())},
    "categories of pandas (always read)": {"observation": pa.array(ROOM).dictionary_encode()},
    "binary (always read)": {"observation": pa.array([room.encode() for room in ROOM])},
    "binary_view (always read)": {"observation": pa.array([room.encode() for room in ROOM], pa.binary_view())},
    "list": {"observation": pa.array(ROOMS, pa.list_(pa.string()))},
    "large_list, of polars": {"observation": pa.array(ROOMS, pa.large_list(pa.string()))},
    "fixed_size_list, of datasets": {"observation": pa.array(ROOMS, pa.list_(pa.string(), 2))},
    "list_view, of DuckDB": {"observation": pa.array(ROOMS, pa.list_view(pa.string()))},
    "large_list_view": {"observation": pa.array(ROOMS, pa.large_list_view(pa.string()))},
    "struct": {"observation": pa.array(STRUCTS)},
    "list of structs": {"observation": pa.array([[one] for one in STRUCTS])},
    "map": {"observation": pa.array([[("room", room)] for room in ROOM], pa.map_(pa.string(), pa.string()))},
    "messages as prompt": {"prompt": pa.array([[{"role": "user", "content": room}] for room in ROOM])},
    "nested actions": {"action": pa.array([{"name": "go", "arguments": "{}"}] * 4)},
    "float16 (always read)": {"reward": pa.array(np.array(REWARD, np.float16))},
    "decimals of DuckDB (always read)": {"reward": pa.array([Decimal(str(value)) for value in REWARD])},
    "steps as floats of pandas (always read)": {"step": pa.array([float(step) for step in STEP])},
    "unsigned steps (always read)": {"step": pa.array(STEP, pa.uint8())},
    "steps from 1": {"step": [step + 1 for step in STEP]},
    "times with nanoseconds, of pandas": {"observation": pa.array([1, 2, 1, 3], pa.timestamp("ns"))},
    "times of day with nanoseconds": {"observation": pa.array([1, 2, 1, 3], pa.time64("ns"))},
    "times beyond the year 9999": {"group": pa.array([10**18] * 4, pa.timestamp("us"))},
    "durations": {"action": pa.array([1, 2, 1, 3], pa.duration("ns"))},
    "trajectory ids of numbers and text (always read)": {"trajectory": ["0", "0", "1", "1"]},
}


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(columns, marks=pytest.mark.slow if "always read" in name else [])
        for name, columns in COLUMNS.items()
    ],
    ids=COLUMNS,
)
def test_every_type_of_arrow_is_read(tmp_path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(table(**columns), tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED
    assert main(["inspect", str(tmp_path / "steps.parquet"), "-o", str(tmp_path / "report.html")]) == 0


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns"), pa.timestamp("us")])
def test_times_that_json_has_not_are_refused_by_name(tmp_path: Path, kind: Any, capsys: Any) -> None:
    pq.write_table(table(at=pa.array([1, 1001, 2, 3], kind)), tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED
    assert main(["advantages", str(tmp_path / "steps.parquet"), "-o", str(tmp_path / "out.jsonl")]) == 2
    assert "write .parquet, or leave its column out" in capsys.readouterr().err


KINDS_OF_LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda kind: pa.list_(kind, 2)]


@pytest.mark.parametrize(
    "kind", KINDS_OF_LISTS, ids=["list (always read)", "large", "view", "large view", "fixed size"]
)
def test_trajectories_in_every_kind_of_list(tmp_path: Path, kind: Any) -> None:
    step = pa.struct({"observation": pa.string(), "action": pa.string(), "reward": pa.float64()})
    lines = pa.table({"group": ["a", "a"], "trajectory": [0, 1], "steps": pa.array(STEPS, kind(step))})
    pq.write_table(lines, tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED


STEPS = [
    [{"observation": ROOM[row], "action": "go", "reward": REWARD[row]} for row in rows] for rows in ((0, 1), (2, 3))
]


def test_trajectories_beside_times_and_as_json_text(tmp_path: Path) -> None:
    columns = {"group": ["a", "a"], "trajectory": [0, 1], "at": pa.array([1, 1001], pa.timestamp("ns"))}
    for steps in (STEPS, [json.dumps(steps) for steps in STEPS]):
        pq.write_table(pa.table({**columns, "steps": steps}), tmp_path / "steps.parquet")
        assert advantages(tmp_path) == EXPECTED


def test_a_game_beside_times_can_be_played(tmp_path: Path, capsys: Any) -> None:
    pq.write_table(table(at=pa.array([1, 1001, 2, 3], pa.timestamp("ns"))), tmp_path / "steps.parquet")
    assert main(["play", str(tmp_path / "steps.parquet")]) == 0
    assert "hall" in capsys.readouterr().out


def test_times_with_nanoseconds_inside_messages_are_an_error(tmp_path: Path, capsys: Any) -> None:
    kind = pa.struct({"role": pa.string(), "content": pa.string(), "at": pa.timestamp("ns")})
    talk = pa.array([[{"role": "assistant", "content": "go", "at": 1}]], pa.list_(kind))
    pq.write_table(pa.table({"group": [1], "reward": [1.0], "messages": talk}), tmp_path / "steps.parquet")
    assert main(["advantages", str(tmp_path / "steps.parquet")]) == 2
    assert "steps.parquet: column 'messages': a nested time cannot be read (" in capsys.readouterr().err


@pytest.mark.parametrize("time", [pa.array([1], pa.timestamp("ns")), pa.array([10**17], pa.timestamp("ms"))])
def test_times_that_python_lacks_inside_an_observation_are_an_error(tmp_path: Path, time: Any, capsys: Any) -> None:
    seen = pa.ListArray.from_arrays(pa.array([0, 1, 1, 1, 1], pa.int32()), time)
    pq.write_table(table(observation=seen), tmp_path / "steps.parquet")
    for command in (["advantages"], ["inspect", "-o", str(tmp_path / "report.html")]):
        assert main([command[0], str(tmp_path / "steps.parquet"), *command[1:]]) == 2
        assert "steps.parquet: column 'observation': a nested time cannot be read (" in capsys.readouterr().err


def test_steps_from_1_are_reported_as_such(tmp_path: Path, capsys: Any) -> None:
    for steps, message in (
        ([1, 3, 1, 2], "row 1: column 'step': counted from 0, trajectory 0 has step 2 but no step 1; "),
        ([1, 1, 1, 2], "row 1: column 'step': counted from 0, trajectory 0 already has step 0 in "),
    ):
        pq.write_table(table(step=steps), tmp_path / "steps.parquet")
        assert main(["advantages", str(tmp_path / "steps.parquet")]) == 2
        assert message in capsys.readouterr().err


def test_trajectories_with_uuids_and_decimals_of_duckdb(tmp_path: Path) -> None:
    ids = pa.array([bytes(15) + bytes([number]) for number in (1, 1, 2, 3)], pa.uuid())
    rewards = pa.array([Decimal("1.5"), Decimal("0.5")], pa.decimal128(5, 2))
    steps = [[{"observation": "hall"}]] * 2
    lines = pa.table({"group": ids[:2], "trajectory": ids[2:], "reward": rewards, "steps": steps})
    pq.write_table(lines, tmp_path / "steps.parquet")
    assert advantages(tmp_path) == [0.5, -0.5]


NESTED = {
    "mappings in another order": ([{"a": 1, "b": 2}, 1, {"b": 2, "a": 1}, 2], [2, 1, 2, 1]),
    "a missing key is no null": ([{"a": 1}, 1, {"a": 1, "b": None}, 2], [1, 1, 1, 1]),
    "lists": ([["hall", 1], 1, ["hall", 1.0], 2], [2, 1, 2, 1]),
    "text and mappings": (["hall", {"room": 1}, "hall", {"room": 2}], [2, 1, 2, 1]),
}


@pytest.mark.parametrize(("observations", "sizes"), NESTED.values(), ids=NESTED)
def test_nested_values_of_json_lines(tmp_path: Path, observations: list[Any], sizes: list[int]) -> None:
    rows = table().drop_columns(["observation"]).to_pylist()
    lines = [
        {**row, "observation": str(seen) if isinstance(seen, int) else seen}
        for row, seen in zip(rows, observations, strict=True)
    ]
    write_rows(tmp_path / "steps.jsonl", lines)
    advantages(tmp_path, name="steps.jsonl")
    assert pq.read_table(tmp_path / "out.parquet")["level_0_size"].to_pylist() == sizes


def test_a_trajectory_may_be_an_id_within_its_group(tmp_path: Path) -> None:
    rows = [{**row, "group": group, "reward": row["reward"] + group} for group in (1, 2) for row in table().to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED * 2
    report = tmp_path / "report.html"
    assert main(["inspect", str(tmp_path / "steps.parquet"), "-o", str(report)]) == 0


def test_a_missing_trajectory_is_named_where_ids_repeat_in_other_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "group": group} for group in (1, 2) for row in table().to_pylist()]
    path = write_rows(tmp_path / "steps.jsonl", [*rows[:-1], {**rows[-1], "trajectory": None}])
    assert main(["advantages", str(path)]) == 2
    assert "steps.jsonl line 8: column 'trajectory': missing value (None)" in capsys.readouterr().err
    assert main(["inspect", str(path), "-o", str(tmp_path / "report.html")]) == 0
    assert "column 'trajectory': missing value (None)" in capsys.readouterr().out


def test_ids_may_contain_the_separator_of_group_and_trajectory(tmp_path: Path) -> None:
    pairs = [("a/b", "c"), ("a/b", "d"), ("a", "b/c"), ("a", "c")]
    rows = [
        {**row, "group": group, "trajectory": trajectory, "reward": reward}
        for (group, trajectory), reward in zip(pairs, (1.0, 0.0, 0.0, 1.0), strict=True)
        for row in table().slice(0, 1).to_pylist()
    ]
    write_rows(tmp_path / "steps.jsonl", rows)
    assert advantages(tmp_path, name="steps.jsonl") == [0.5, -0.5, -0.5, 0.5]


def test_an_array_of_records_of_pandas(tmp_path: Path) -> None:
    (tmp_path / "steps.json").write_text(json.dumps(table().to_pylist()), encoding="utf-8")
    assert advantages(tmp_path, name="steps.json") == EXPECTED


def test_one_file_per_update_is_one_batch_per_update(tmp_path: Path) -> None:
    folder = tmp_path / "updates"
    folder.mkdir()
    for update in (1, 2):
        pq.write_table(table(observation=pa.array(ROOM, pa.string_view())), folder / f"{update}.parquet")
    assert advantages(tmp_path, name="updates") == EXPECTED * 2


PRINTED = {
    "numpy": "[[0 0 0 ... 0 0 0]\n [0 0 0 ... 0 0 0]]",
    "numpy's rows": "[[0 1]\n [0 1]\n ...\n [0 1]\n [0 1]]",
    "numpy's floats": "[0.1 0.2 ... -0.3 1e-05]",
    "numpy's repr": "array([0, 0, 0, ..., 0, 0, 0])",
    "numpy's text": "['wall' 'wall' ... 'floor' 'wall']",
    "torch": "tensor([[0., 0., 0.,  ..., 0., 0., 0.]])",
    "torch's rows": "tensor([[0, 1],\n        ...,\n        [0, 1]])",
    "booleans": "[ True False ... False  True]",
}


@pytest.mark.parametrize("text", PRINTED.values(), ids=PRINTED)
def test_printed_arrays_without_their_middle_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    pq.write_table(table(observation=["hall", text, "hall", text]), tmp_path / "steps.parquet")
    assert main(["advantages", str(tmp_path / "steps.parquet")]) == 2
    assert "row 1: column 'observation': " in (told := capsys.readouterr().err)
    assert "is a printed array without its middle" in told
    assert main(["inspect", str(tmp_path / "steps.parquet"), "-o", str(tmp_path / "report.html")]) != 0
    assert "is a printed array without its middle" in capsys.readouterr().err


def test_many_printed_arrays_are_rejected_in_little_time(tmp_path: Path) -> None:
    rooms = [f"[{row} 0 ... 0]" for row in range(20_000)]
    ids = {"group": [0] * len(rooms), "trajectory": list(range(len(rooms))), "step": [0] * len(rooms)}
    start = time.process_time()
    with pytest.raises(ColumnError, match=r"row 0: '.0 0 \.\.\. 0.' is a printed array"):
        step_batch_from_table(pa.table({**ids, "observation": rooms, "reward": [0.0] * len(rooms)}))
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize("form", ["<PIL.Image.Image image mode=RGB size=64x64 at 0x7F{}>", '{{"a": "<Obs at 0xa{}>"}}'])
def test_texts_of_objects_without_content_are_rejected(tmp_path: Path, form: str, capsys: Any) -> None:
    pq.write_table(table(observation=[form.format(row) for row in range(4)]), tmp_path / "steps.parquet")
    for command in (["advantages"], ["inspect", "-o", str(tmp_path / "report.html")]):
        assert main([command[0], str(tmp_path / "steps.parquet"), *command[1:]]) == 2
        assert "has an object's address, as in all rows" in capsys.readouterr().err
    rooms = ["hall", form.format(1), "hall", form.format(2)]  # such as the output of an interpreter
    pq.write_table(table(observation=rooms), tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED


@pytest.mark.parametrize("text", ["[search] ... [SEP] ...", "Wait ... what?", "[1 2 3]", "[hall] you see ... a door"])
def test_other_texts_with_dots_are_read(tmp_path: Path, text: str) -> None:
    """As always."""
    pq.write_table(table(observation=[text, "kitchen", text, "cellar"]), tmp_path / "steps.parquet")
    assert advantages(tmp_path) == EXPECTED


def test_a_missing_column_lists_the_keys_found_and_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(table().rename_columns(["uid", "rollout", "t", "obs", "r"]), tmp_path / "steps.parquet")
    for command in (["advantages"], ["inspect", "-o", str(tmp_path / "report.html")]):
        assert main([command[0], str(tmp_path / "steps.parquet"), *command[1:]]) == 2
        told = capsys.readouterr().err
        assert "no column group, trajectory, step, observation, reward. The file has uid, rollout, t, obs, r" in told
        assert "--column group=KEY" in told
    pairs = ("group=uid", "trajectory=rollout", "step=t", "observation=obs", "reward=r")
    assert advantages(tmp_path, *(word for pair in pairs for word in ("--column", pair))) == EXPECTED


def test_scalars_and_arrays_of_numpy_and_torch() -> None:
    torch = pytest.importorskip("torch")
    columns = {"group": GROUP, "trajectory": TRAJECTORY, "step": STEP, "observation": ROOM}
    for reward in (
        [np.float32(value) for value in REWARD],
        [torch.tensor(value) for value in REWARD],
        [torch.tensor(value, dtype=torch.bfloat16) for value in REWARD],
        torch.tensor(REWARD, dtype=torch.bfloat16),
        torch.tensor(REWARD, dtype=torch.float16, requires_grad=True),
        np.array(REWARD, np.float16),
    ):
        assert StepBatch.from_columns(**columns, reward=reward).reward.tolist() == REWARD
    for step in ([np.uint8(value) for value in STEP], torch.tensor(STEP, dtype=torch.int32), np.array(STEP, np.int8)):
        assert StepBatch.from_columns(**{**columns, "step": step}, reward=REWARD).step.tolist() == STEP
    keys = [np.str_("a")] * 4, np.array(GROUP), [np.int64(7)] * 4
    for group in keys:
        assert StepBatch.from_columns(**{**columns, "group": group}, reward=REWARD).group.tolist() == [0] * 4
    success = torch.tensor([True, True, False, False])
    assert StepBatch.from_columns(**columns, reward=REWARD, success=success).success is not None
