import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.storage.schema import Problems
from hgpo.storage.step_batches import undamaged_trajectories
from hgpo.storage.tables import read_json_lines, read_parquet
from house import write_rows


def repaired(path):
    """The batch, the rows of the file that it is made of, and the notices."""
    problems = Problems(path, strict=False)
    if path.suffix == ".parquet":
        table = read_parquet(path)
        numbers = range(table.num_rows)
    else:
        table, numbers = read_json_lines(path, problems)
    table = table.append_column("number", pa.array(numbers))
    batch, kept = undamaged_trajectories(table, numbers, problems)
    first = 0 if path.suffix == ".parquet" else 1
    return batch, [number - first for number in kept["number"].to_pylist()], problems.notices()


def test_undamaged_rows_are_all_kept(tmp_path, rows):
    batch, kept, notices = repaired(write_rows(tmp_path / "1.jsonl", rows))
    assert (len(batch), kept, notices) == (len(rows), list(range(len(rows))), [])
    assert batch.success.sum() == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "much"}, "column 'reward' is 'much', which does not go with 0.0 in other rows"),
        ({"reward": None}, "column 'reward': missing value (None), expected a number"),
        ({"reward": float("nan")}, "column 'reward': expected a finite number"),
        ({"reward": 1e300}, "column 'reward': expected a finite number of magnitude up to 1e+100"),
        ({"penalty": -1}, "column 'penalty': is subtracted, so it must be at least 0"),
        ({"step": -1}, "column 'step': expected an integer from 0"),
        ({"step": 0}, "column 'step': trajectory '1/a#0' already has step 0 in 1.jsonl line 1"),
        ({"step": 7}, "column 'step': trajectory '1/a#0' has step 7 but no step 1"),
        ({"step": 0.5}, "column 'step': expected an integer from 0"),
        ({"group": None}, "column 'group': missing value (None)"),
        ({"group": ["a", "list"]}, "column 'group' is ['a', 'list'], which does not go with"),
        ({"trajectory": {"a": 1}}, "column 'trajectory' is {'a': 1}, which does not go with"),
        ({"group": "1/b"}, "trajectory '1/a#0' is in group '1/a' and in group '1/b'"),
    ],
)
def test_a_damaged_row_takes_its_trajectory_with_it(tmp_path, rows, change, message):
    rows = [{**row, "penalty": 0.0} for row in rows]
    rows[1] = {**rows[1], **change}
    batch, kept, notices = repaired(write_rows(tmp_path / "1.jsonl", rows))
    assert len(batch) <= len(rows) - 1
    assert 1 not in kept
    assert any(notice.row in (1, 2) and message in notice.message for notice in notices)
    assert set(kept) >= set(range(2, len(rows)))


def test_trajectories_without_their_end_go_when_the_file_was_cut(tmp_path, rows):
    path = write_rows(tmp_path / "1.jsonl", rows)
    path.write_bytes(path.read_bytes()[:-30])
    batch, kept, notices = repaired(path)
    assert len(batch) == len(rows) - 2
    assert kept == list(range(len(rows) - 2))
    assert [notice.row for notice in notices] == [len(rows), len(rows) - 1]
    assert "the end of its trajectory is in the part that cannot be read" in notices[1].message


def test_truncated_alone_does_not_mark_the_end_of_every_trajectory(tmp_path, rows):
    path = write_rows(tmp_path / "1.jsonl", [{key: row[key] for key in row if key != "terminated"} for row in rows])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"group": "a", "traj')
    batch, _, notices = repaired(path)
    assert (len(batch), [notice.row for notice in notices]) == (len(rows), [len(rows) + 1])


def test_nothing_left_is_no_batch(tmp_path, rows):
    batch, kept, notices = repaired(write_rows(tmp_path / "1.jsonl", [{**rows[0], "reward": "x"}]))
    assert (batch, kept) == (None, [])
    assert len(notices) == 1


def test_rows_that_are_all_there_twice_are_one_notice(tmp_path, rows):
    batch, kept, notices = repaired(write_rows(tmp_path / "1.jsonl", rows * 2))
    assert (batch, kept) == (None, [])
    trajectories = len({row["trajectory"] for row in rows})
    assert [str(notice) for notice in notices] == [
        f"1.jsonl line {len(rows) + 1}: column 'step': trajectory '1/a#0' already has step 0 in 1.jsonl line 1; its "
        f"trajectory and {trajectories - 1} more like it are left out of the comparisons"
    ]


@pytest.mark.parametrize("name", ["success", "penalty", "value", "prompt"])
def test_what_is_missing_in_one_row_only_takes_its_trajectory(tmp_path, rows, name):
    rows = [{**row, "success": bool(row["won"]), "penalty": 0, "value": 0.5} for row in rows]
    rows[1][name] = None
    batch, kept, notices = repaired(write_rows(tmp_path / "1.JSONL", rows))
    assert 0 < len(batch) < len(rows)
    assert 1 not in kept
    assert f"column {name!r}: missing value, though other rows have one" in notices[0].message


def test_ids_of_parquet_may_be_of_a_kind_that_is_no_key(tmp_path, rows):
    for name in ("group", "trajectory"):
        table = pa.Table.from_pylist([{**row, name: [row[name]]} for row in rows])
        pq.write_table(table, tmp_path / "1.parquet")
        batch, kept, notices = repaired(tmp_path / "1.parquet")
        assert (batch, kept) == (None, [])
        assert f"column {name!r}: value of type list cannot be a key" in str(notices[0])


def test_a_missing_step_takes_only_its_trajectory_from_steps_from_1(tmp_path):
    steps = [("a", 1), ("a", None), ("b", 1), ("b", 2), ("c", 1), ("c", 3)]
    rows = [
        {"group": 0, "trajectory": trajectory, "step": step, "observation": "hall", "reward": 0.0}
        for trajectory, step in steps
    ]
    _, kept, notices = repaired(write_rows(tmp_path / "1.jsonl", rows))
    assert kept == [2, 3]
    assert "missing value (None)" in notices[0].message


def test_ids_that_are_times_with_nanoseconds(tmp_path):
    columns = {"group": pa.array([1, 2], pa.timestamp("ns")), "trajectory": [0, 1], "step": [0, 0]}
    table = pa.table({**columns, "observation": ["hall"] * 2, "reward": [float("nan"), 1.0]})
    pq.write_table(table, tmp_path / "1.parquet")
    assert repaired(tmp_path / "1.parquet")[1] == [1]
