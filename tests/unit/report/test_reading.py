import json

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.report.reading import Notice, count_rows, read_file
from hgpo.storage.tables import write_table


def test_a_cut_line_names_its_row_and_the_others_are_read(tmp_path, rows, write):
    path = write(tmp_path / "1.jsonl", rows)
    path.write_bytes(path.read_bytes()[:-30])
    file = read_file(path)
    assert len(file) == len(rows) - 1
    assert file.row_number == list(range(1, len(rows)))
    assert file.cut
    assert [str(notice).split(":")[0] for notice in file.notices] == [f"1.jsonl, row {len(rows)}"] * 2
    assert "cut off here" in str(file.notices[1])


def test_rows_of_another_schema_version_are_one_notice(tmp_path, rows, write):
    other = [{**row, "schema_version": 9} for row in rows[:3]]
    file = read_file(write(tmp_path / "1.jsonl", [*rows[3:], *other]))
    assert len(file) == len(rows) - 3
    (notice,) = file.notices
    assert notice.row == len(rows) - 2
    assert "has schema version 9; this release reads 1" in notice.message
    assert "2 more rows" in notice.message


def test_what_is_no_text_or_no_object_is_left_out(tmp_path, rows):
    lines = [json.dumps(rows[0]).encode(), b"\xff\xfe{}", b"[1, 2]", b"", b'{"a": ' + b"[" * 100_000]
    path = tmp_path / "1.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    file = read_file(path)
    assert file.row_number == [1]
    assert {notice.row for notice in file.notices} >= {2, 3}


def test_parquet_and_jsonl_give_the_same_columns(tmp_path, rows, write):
    table = pa.Table.from_pylist(rows)
    write_table(tmp_path / "1.parquet", table)
    assert read_file(tmp_path / "1.parquet").columns == read_file(write(tmp_path / "1.jsonl", rows)).columns


def test_a_truncated_parquet_file_says_so(tmp_path, rows):
    path = tmp_path / "7.parquet"
    write_table(path, pa.Table.from_pylist(rows))
    path.write_bytes(path.read_bytes()[:-100])
    file = read_file(path)
    assert len(file) == 0
    assert "7.parquet" in str(file.notices[0])
    assert "cut off" in str(file.notices[0])
    assert count_rows(path) == 0


def test_a_damaged_row_group_leaves_the_others(tmp_path, rows):
    path = tmp_path / "1.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4, compression="zstd", use_dictionary=False)
    start = pq.read_metadata(path).row_group(1).column(4).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(bytes(content))
    file = read_file(path)
    assert file.row_number == [0, 1, 2, 3, 8, 9, 10]
    assert "rows 4 to 7 cannot be read" in file.notices[0].message
    assert file.notices[0].row == 4


def test_another_schema_version_of_parquet_is_refused(tmp_path, rows):
    path = tmp_path / "1.parquet"
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata({"hgpo_schema_version": "2"}), path)
    file = read_file(path)
    assert len(file) == 0
    assert str(file.notices[0]).startswith("1.parquet, row 0: has schema version 2; this release reads 1")


def test_a_notice_names_file_and_row():
    assert str(Notice("is odd", "a.jsonl", 3)) == "a.jsonl, row 3: is odd"
    assert str(Notice("is odd")) == "is odd"
