import pytest

from hgpo.report.loading import chosen_updates, list_updates, number_ranges, read_update


def test_updates_are_the_numbers_in_the_names(tmp_path, rows, write):
    for name in ("10.jsonl", "9.jsonl", "00002.jsonl"):
        write(tmp_path / "rollouts" / name, rows)
    assert [file.update for file in list_updates(tmp_path)] == [2, 9, 10]
    assert {file.rows for file in list_updates(tmp_path)} == {len(rows)}


def test_names_without_numbers_are_counted(tmp_path, rows, write):
    write(tmp_path / "b.jsonl", rows)
    write(tmp_path / "a.jsonl", rows)
    write(tmp_path / "metrics.jsonl", [])
    assert [(file.update, file.path.name) for file in list_updates(tmp_path)] == [(1, "a.jsonl"), (2, "b.jsonl")]


def test_texts_stay_with_their_rows(folder, rows):
    steps = read_update(list_updates(folder)[0])
    assert steps.texts["response"] == [row["response"] for row in rows]
    assert steps.notices == ()


@pytest.mark.parametrize(("name", "message"), [("none", "no such file or folder"), ("a.csv", "neither parquet nor")])
def test_what_is_not_there_or_not_readable_is_said(tmp_path, name, message):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=message):
        list_updates(tmp_path / name)


def test_updates_that_are_not_there_are_refused_with_those_that_are(tmp_path, rows, write):
    for name in ("10.jsonl", "9.jsonl", "00002.jsonl"):
        write(tmp_path / "rollouts" / name, rows)
    files = list_updates(tmp_path)
    assert [file.update for file in chosen_updates(tmp_path, files, [10, 2])] == [2, 10]
    with pytest.raises(ValueError, match=r"holds no rollouts of update 3, 99; it holds those of 2, 9 to 10$"):
        chosen_updates(tmp_path, files, [99, 10, 3])


def test_number_ranges():
    assert number_ranges([3, 1, 2, 10, 7]) == "1 to 3, 7, 10"
    assert number_ranges([4]) == "4"
