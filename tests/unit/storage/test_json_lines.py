"""Files are written as bytes here: what is wrong with them is what a JSON writer would not do."""

import json

import pytest

from hgpo.storage.json_lines import filled_lines, read_json_lines
from hgpo.storage.schema import StorageError

ROW = {"group": "g", "trajectory": "a", "step": 0, "observation": "s", "reward": 0.0}


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "x.jsonl"
        texts = [line if isinstance(line, (str, bytes)) else json.dumps(line) for line in lines]
        path.write_bytes(b"\n".join(text if isinstance(text, bytes) else text.encode() for text in texts))
        return path

    return write


def test_the_columns_are_those_of_all_rows(file):
    table = read_json_lines(file(ROW, ROW | {"penalty": 0.5}, {"success": True}))
    assert table.column_names == [*ROW, "penalty", "success"]
    assert table["penalty"].to_pylist() == [None, 0.5, None]
    assert table["success"].to_pylist() == [None, None, True]
    assert table["step"].to_pylist() == [0, 0, None]


def test_blank_lines_are_no_rows(file):
    path = file("", ROW, "  \t", "", ROW, "")
    assert read_json_lines(path).num_rows == 2
    assert list(filled_lines(path)) == [2, 5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 100_000, r"x\.jsonl line 3 is nested too deeply"),
        ("1" * 5_000, r"x\.jsonl line 3 is not JSON: Exceeds the limit"),
        (b'{"group": "caf\xe9"}', r"x\.jsonl line 3 is not UTF-8 .*write it as UTF-8"),
        ('{"group": ', r"x\.jsonl line 3 is not JSON: .*write it again or remove it"),
        ("7", r"x\.jsonl line 3 is not an object"),
        ({"observation": "\ud800"}, r"x\.jsonl line 3: column 'observation' is '.ud800', .*surrogate.*replace it"),
        ({"note": ["fine", "\udfff"]}, r"x\.jsonl line 3: column 'note' is .*surrogate"),
        ({"note": {"deep": ["\udfff"]}}, r"x\.jsonl line 3: column 'note' is .*surrogate"),
        ({"\ud800": 1}, r"x\.jsonl line 3: the name of column '.ud800' has half of a surrogate pair"),
        ({"step": 2**70}, r"x\.jsonl line 3: column 'step' is 1180591620717411303424, which 64 bits .*as text"),
        ({"step": -(2**63) - 1}, r"x\.jsonl line 3: column 'step' is -9223372036854775809, which 64 bits"),
        ({"reward": 2**70}, r"x\.jsonl line 3: column 'reward' is 1180591620717411303424, which 64 bits"),
        ({"group": 1}, r"x\.jsonl line 3: column 'group' is 1, which does not go with 'g' above it .*ids as text"),
        ({"reward": "1"}, r"x\.jsonl line 3: column 'reward' is '1', .* 0\.0 above it .*numbers without quotes"),
        ({"observation": {"x": 1}}, r"x\.jsonl line 3: column 'observation' is \{'x': 1\}, which does not go"),
    ],
)
def test_what_cannot_be_read_names_file_line_column_and_remedy(file, line, message):
    with pytest.raises(StorageError, match=message):
        read_json_lines(file(ROW, "", line, ROW))


def test_an_empty_file_is_named(file):
    for lines in ((), ("", "  ")):
        with pytest.raises(StorageError, match=r"x\.jsonl holds no rows; write it again or remove it"):
            read_json_lines(file(*lines))
    with pytest.raises(StorageError, match=r"x\.jsonl: no row has a column"):
        read_json_lines(file({}, {}))


def test_the_line_of_a_misfit_is_found_among_many(file):
    rows = [ROW | {"step": step} for step in range(1000)]
    rows[777]["step"] = "777"
    with pytest.raises(StorageError, match=r"line 778: column 'step' is '777', which does not go with 0 above it"):
        read_json_lines(file(*rows))


def test_whole_numbers_and_fractions_are_numbers(file):
    assert read_json_lines(file({"reward": 1}, {"reward": 0.5}))["reward"].to_pylist() == [1.0, 0.5]


def test_nesting_that_can_be_read_stays(file):
    deep = "[" * 400 + "]" * 400
    assert json.dumps(read_json_lines(file(f'{{"note": {deep}}}'))["note"].to_pylist()[0]) == deep
