"""Files are written as bytes here: what is wrong with them is what a JSON writer would not do."""

import json

import pytest

from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_intact
from hgpo.storage.schema import Problems, StorageError
from hgpo.storage.tables import read_json_lines

ROW = {"group": "g", "trajectory": "a", "step": 0, "observation": "s", "reward": 0.0}


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "x.jsonl"
        texts = [line if isinstance(line, (str, bytes)) else json.dumps(line) for line in lines]
        path.write_bytes(b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts))
        return path

    return write


def read(path, strict=True):
    return read_json_lines(path, Problems(path, strict))[0]


def test_the_columns_are_those_of_all_rows(file):
    table = read(file(ROW, ROW | {"penalty": 0.5}, {"success": True}))
    assert table.column_names == [*ROW, "penalty", "success"]
    assert table["penalty"].to_pylist() == [None, 0.5, None]
    assert table["success"].to_pylist() == [None, None, True]
    assert table["step"].to_pylist() == [0, 0, None]


def test_blank_lines_are_no_rows(file):
    path = file("", ROW, "  \t", "", ROW, "")
    table, numbers = read_json_lines(path, Problems(path, strict=True))
    assert (table.num_rows, numbers) == (2, [2, 5])


def test_a_byte_order_mark_is_no_damage(file):
    assert read(file(b"\xef\xbb\xbf" + json.dumps(ROW).encode(), ROW)).num_rows == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, r"x\.jsonl line 3: nested too deeply"),
        ("1" * 5_000, r"x\.jsonl line 3: not JSON .Exceeds the limit"),
        (b'{"group": "caf\xe9"}', r"x\.jsonl line 3: not UTF-8 .*write it as UTF-8"),
        ('{"group": ', r"x\.jsonl line 3: not JSON .*write it again or remove it"),
        ("7", r"x\.jsonl line 3: not an object"),
        ({"observation": "\ud800"}, r"x\.jsonl line 3: column 'observation' is '.ud800', .*surrogate.*text as UTF-8"),
        ({"\ud800": 1}, r"x\.jsonl: the name of a column has half of a surrogate pair .*ud800"),
        ({"step": 2**70}, r"x\.jsonl line 3: column 'step' is 1180591620717411303424, which does not go .*as text"),
        ({"step": -(2**63) - 1}, r"x\.jsonl line 3: column 'step' is -9223372036854775809, which does not go"),
        ({"reward": 2**70}, r"x\.jsonl line 3: column 'reward' is 1180591620717411303424, which does not go"),
        ({"group": 1}, r"x\.jsonl line 3: column 'group' is 1, which does not go with 'g' in other rows .*ids as text"),
        ({"reward": "1"}, r"x\.jsonl line 3: column 'reward' is '1', .* 0\.0 in other rows .*numbers without quotes"),
        ({"trajectory": {"x": 1}}, r"x\.jsonl line 3: column 'trajectory' is \{'x': 1\}, which does not go"),
    ],
)
def test_what_cannot_be_read_names_file_line_column_and_remedy(file, line, message):
    with pytest.raises(StorageError, match=message):
        read(file(ROW, "", line, ROW))


def test_rows_without_columns_are_named(file):
    for lines in ((), ("", "  ")):
        assert read(file(*lines)).num_rows == 0
    with pytest.raises(StorageError, match=r"x\.jsonl: no row has a column of steps; needed are group, trajectory"):
        read(file({}, {}))


def test_the_line_of_a_misfit_is_found_among_many(file):
    rows = [ROW | {"step": step} for step in range(1000)]
    rows[777]["step"] = "777"
    with pytest.raises(StorageError, match=r"line 778: column 'step' is '777', which does not go with 0 in other rows"):
        read(file(*rows))


def test_whole_numbers_and_fractions_are_numbers(file):
    assert read(file({"reward": 1}, {"reward": 0.5}))["reward"].to_pylist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("notes", "read_as"),
    [
        ([1, "n/a", None, 2.5], ["1", "n/a", None, "2.5"]),
        ([{"a": 1}, {"a": "x"}, [True], None], ['{"a": 1}', '{"a": "x"}', "[true]", None]),
        ([2**70, -1, 0.5, "\udfff"], [str(2**70), "-1", "0.5", "?"]),
        ([["fine", "\udfff"], {"deep": ["\udfff"]}], ['["fine", "\\udfff"]', '{"deep": ["\\udfff"]}']),
    ],
)
def test_values_of_several_types_are_text_in_a_column_that_is_not_computed_with(file, notes, read_as):
    numbers, notices = lost(path := file(*(ROW | {"note": note} for note in notes)))
    assert (len(numbers), notices) == (len(notes), [])
    assert read(path)["note"].to_pylist() == read_as


@pytest.mark.parametrize("name", ["truncated", "terminated"])
def test_ends_of_another_meaning_take_no_trajectory(tmp_path, file, name):
    path = file(ROW | {name: False}, ROW | {name: 57, "step": 1}, '{"group": ')
    [found] = find_step_files(path)
    assert len(read_intact(found)[0].batch) == 2


def test_nesting_that_can_be_read_stays(file):
    deep = "[" * 400 + "]" * 400
    assert json.dumps(read(file(f'{{"note": {deep}}}'))["note"].to_pylist()[0]) == deep


def test_a_line_that_ends_the_file_before_its_time_is_called_cut_off(file):
    with pytest.raises(StorageError, match=r"line 2: not JSON .*, the file may have been cut off here; write it again"):
        read(file(ROW, '{"group": '))
    with pytest.raises(StorageError, match=r"line 2: not JSON \([^)]*\)\); write it again"):
        read(file(ROW, '{"group": ', ROW))


def test_numbers_that_are_no_column_together_are_named(file):
    with pytest.raises(
        StorageError, match=r"x\.jsonl: column 'step': .*1152921504606846977.*; write values of one type"
    ):
        read(file(ROW | {"step": 1}, ROW | {"step": 2**60 + 1}, ROW | {"step": 0.5}))


def lost(path):
    """The numbers of the rows that a tolerant reader keeps, and its notices."""
    problems = Problems(path, strict=False)
    table, numbers = read_json_lines(path, problems)
    assert table.num_rows == len(numbers)
    return numbers, [str(notice) for notice in problems.notices()]


def test_what_is_no_row_is_left_out(file):
    numbers, notices = lost(file(ROW, b"\xff\xfe{}", "[1, 2]", "", '{"a": ' + "[" * 100_000, ROW))
    assert numbers == [1, 6]
    assert [notice.split(";")[0].split(" (")[0] for notice in notices] == [
        "x.jsonl line 2: not UTF-8",
        "x.jsonl line 3: not an object but an array",
        "x.jsonl line 5: nested too deeply to be read",
    ]


def test_a_cut_line_is_left_out(file):
    path = file(ROW, ROW, ROW)
    path.write_bytes(path.read_bytes()[:-30])
    numbers, (notice,) = lost(path)
    assert numbers == [1, 2]
    assert notice.startswith("x.jsonl line 3: not JSON")
    assert "the file may have been cut off here" in notice


def test_rows_of_another_schema_version_are_one_notice(file):
    other = ROW | {"schema_version": 9}
    numbers, (notice,) = lost(file(ROW, other, other, other, ROW | {"schema_version": 1}))
    assert numbers == [1, 5]
    assert notice.startswith("x.jsonl line 2: schema version 9; this release reads 1: write it again")
    assert "2 more rows" in notice


def test_a_flipped_bit_gives_a_table_or_an_error_that_names_the_line(file):
    path = file(ROW | {"reward": 0.125})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            said = "x.jsonl"
            try:
                read(path)
            except StorageError as error:
                said = str(error)
            assert "x.jsonl" in said, (place, bit)


@pytest.mark.parametrize("odd", ["1", {"x": 1}, ["a"], 2**70])
def test_values_of_another_kind_than_most_are_null_and_reported_wherever_they_stand(file, odd):
    for at in range(5):
        values = [0, 0.5, None, 3, 4]
        values[at] = odd
        path = file(*({"reward": value} for value in values))
        problems = Problems(path, strict=False)
        table, _ = read_json_lines(path, problems)
        assert table["reward"].to_pylist() == [value if value is not odd else None for value in values]
        assert list(problems.faulty) == [at + 1]
        assert "column 'reward' is" in problems.faulty[at + 1][1]
        with pytest.raises(StorageError, match=rf"line {at + 1}: column 'reward' is"):
            read(path)
