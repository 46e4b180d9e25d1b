import json

import pytest

from hgpo.report.reading import read_file
from hgpo.report.repair import whole_trajectories


def repaired(path):
    return whole_trajectories(read_file(path), path.name)


def test_undamaged_rows_are_all_kept(tmp_path, rows, write):
    batch, kept, notices = repaired(write(tmp_path / "1.jsonl", rows))
    assert (len(batch), kept, notices) == (len(rows), list(range(len(rows))), [])
    assert batch.success.sum() == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "much"}, "column 'reward' is not a finite number"),
        ({"reward": None}, "column 'reward' is empty"),
        ({"reward": float("nan")}, "column 'reward' is not a finite number"),
        ({"step": -1}, "column 'step' is out of its range"),
        ({"step": 0}, "is there twice"),
        ({"step": 7}, "an earlier step of its trajectory is missing"),
        ({"observation": ["a", "list"]}, "column 'observation' holds list"),
        ({"trajectory": {"a": 1}}, "column 'trajectory' holds dict"),
        ({"group": "1/b"}, "two groups"),
    ],
)
def test_a_damaged_row_takes_its_trajectory_with_it(tmp_path, rows, write, change, message):
    rows[1] = {**rows[1], **change}
    batch, kept, notices = repaired(write(tmp_path / "1.jsonl", rows))
    assert len(batch) <= len(rows) - 1
    assert 1 not in kept
    assert any(notice.row in (1, 2) and message in notice.message for notice in notices)
    assert set(kept) >= set(range(2, len(rows)))


def test_trajectories_without_their_end_go_when_the_file_was_cut(tmp_path, rows, write):
    path = write(tmp_path / "1.jsonl", rows)
    path.write_bytes(path.read_bytes()[:-30])
    batch, kept, notices = repaired(path)
    assert len(batch) == len(rows) - 2
    assert kept == list(range(len(rows) - 2))
    assert "the end of its trajectory is in the part that cannot be read" in notices[0].message
    assert notices[0].row == len(rows) - 1


def test_a_missing_column_is_named(tmp_path, rows, write):
    for row in rows:
        del row["observation"]
    batch, _, notices = repaired(write(tmp_path / "1.jsonl", rows))
    assert batch is None
    assert "has no column observation" in notices[0].message


def test_nothing_left_is_no_batch(tmp_path, rows, write):
    batch, kept, notices = repaired(write(tmp_path / "1.jsonl", [{**rows[0], "reward": "x"}]))
    assert (batch, kept) == (None, [])
    assert len(notices) == 1
    assert json.dumps(str(notices[0]))


def test_rows_that_are_all_there_twice_are_one_notice(tmp_path, rows, write):
    batch, kept, notices = repaired(write(tmp_path / "1.jsonl", rows * 2))
    assert (batch, kept) == (None, [])
    trajectories = len({row["trajectory"] for row in rows})
    assert [str(notice) for notice in notices] == [
        f"1.jsonl, row {len(rows) + 1}: a step of its trajectory is there twice; {trajectories} trajectories for this "
        "reason are left out of the comparisons of its task"
    ]


def test_a_column_without_any_value_counts_as_not_there(tmp_path, rows, write):
    rows = [{**row, "penalty": None, "success": None} for row in rows]
    batch, kept, notices = repaired(write(tmp_path / "1.jsonl", rows))
    assert (len(batch), len(kept), notices) == (len(rows), len(rows), [])
    assert batch.success.sum() == 3  # read from `won`


def test_success_that_is_missing_in_one_row_takes_its_trajectory(tmp_path, rows, write):
    rows = [{**row, "success": bool(row["won"])} for row in rows]
    rows[1]["success"] = None
    batch, kept, notices = repaired(write(tmp_path / "1.JSONL", rows))
    assert 0 < len(batch) < len(rows)
    assert 1 not in kept
    assert "column 'success' is empty, though other rows have it" in notices[0].message
