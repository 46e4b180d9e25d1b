from pathlib import Path

import pytest

from hgpo.storage.schema import Notice, Problems, StorageError, place_of, suffix_of, truth


def test_the_case_of_a_suffix_means_nothing_and_others_are_refused():
    assert (suffix_of(Path("a.JSONL")), suffix_of(Path("b.Parquet"))) == (".jsonl", ".parquet")
    for name in ("c.csv", "none"):
        with pytest.raises(StorageError, match=rf"{name}: the name of a rollout file ends in \.parquet or \.jsonl"):
            suffix_of(Path(name))


def test_a_notice_names_file_and_row():
    assert str(Notice("is odd", "a.JSONL", 3)) == "a.JSONL line 3: is odd"
    assert str(Notice("is odd", "a.parquet", 0)) == "a.parquet row 0: is odd"
    assert str(Notice("is odd", "a.parquet")) == "a.parquet: is odd"
    assert str(Notice("is odd")) == "is odd"


def test_an_error_names_the_path_and_its_notice_the_file():
    error = StorageError("is odd", Path("folder/a.jsonl"), 3)
    assert str(error) == f"{place_of(Path('folder/a.jsonl'), 3)}: is odd"
    assert str(error.notice) == "a.jsonl line 3: is odd"
    assert str(StorageError("is odd").notice) == "is odd"


@pytest.mark.parametrize("report", ["lost", "fault"])
def test_where_every_row_is_needed_the_first_problem_is_an_error(report):
    problems = Problems(Path("a.jsonl"), strict=True)
    with pytest.raises(StorageError, match=r"^a\.jsonl line 4: is odd$"):
        getattr(problems, report)(4, "is odd")


def test_problems_of_one_kind_are_one_notice_about_the_first_row():
    problems = Problems(Path("a.jsonl"), strict=False)
    for row in (4, 7, 9):
        problems.lost(row, f"is odd in its own way {row}", kind="odd")
    problems.lost(5, "is even")
    assert problems.rows_are_lost
    assert [str(notice) for notice in problems.notices()] == [
        "a.jsonl line 4: is odd in its own way 4; so are 2 more rows; all are left out",
        "a.jsonl line 5: is even",
    ]


def test_a_fault_counts_once_its_trajectory_is_left_out():
    problems = Problems(Path("a.jsonl"), strict=False)
    problems.fault(4, "is odd")
    problems.fault(4, "is also large")
    assert problems.faulty == {4: ("is odd", "is odd")}
    assert not problems.rows_are_lost
    assert problems.notices() == []
    for trajectory in ("a", "b", "b"):
        problems.left_out(trajectory, 4, problems.faulty[4])
    (notice,) = problems.notices()
    assert str(notice) == ("a.jsonl line 4: is odd; its trajectory and 1 more like it are left out of the comparisons")


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        *((spelled, True) for spelled in (True, "True", "true", 1, "1", "1.0")),
        *((spelled, False) for spelled in (False, "False", "false", 0, "0", 0.0)),
    ],
)
def test_a_truth_may_be_written_in_any_of_these_ways(spelled, value):
    assert truth(spelled) is value


@pytest.mark.parametrize("odd", ["TRUE", "yes", "", None, [True], 2, "nan"])
def test_anything_else_is_no_truth(odd):
    with pytest.raises((TypeError, ValueError)):
        truth(odd)
