import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.storage.reading import count_rows
from hgpo.storage.schema import Problems, StorageError
from hgpo.storage.tables import read_parquet, write_table


def damage_row_group(path, rows):
    """A file of row groups of four rows whose second is damaged."""
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4, compression="zstd", use_dictionary=False)
    start = pq.read_metadata(path).row_group(1).column(4).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(bytes(content))


def test_the_columns_that_are_wanted(tmp_path, rows):
    path = tmp_path / "1.parquet"
    write_table(path, pa.Table.from_pylist(rows))
    table, numbers = read_parquet(path, Problems(path, strict=True))
    assert table.to_pylist() == rows
    assert list(numbers) == list(range(len(rows)))
    table, numbers = read_parquet(path, Problems(path, strict=False), {"step", "group", "none"})
    assert table.column_names == ["group", "step"]
    assert len(numbers) == len(rows)


@pytest.mark.parametrize("strict", [True, False])
def test_a_file_without_its_end_has_no_rows(tmp_path, rows, strict):
    path = tmp_path / "7.parquet"
    write_table(path, pa.Table.from_pylist(rows))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match=r"7\.parquet: no row can be read; it is not a parquet file or is truncated"):
        read_parquet(path, Problems(path, strict))
    assert count_rows(path) == 0


@pytest.mark.parametrize("strict", [True, False])
def test_another_schema_version_is_refused(tmp_path, rows, strict):
    path = tmp_path / "1.parquet"
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata({"hgpo_schema_version": "2"}), path)
    with pytest.raises(StorageError, match=r"1\.parquet: schema version 2; this release reads 1: write it again"):
        read_parquet(path, Problems(path, strict))


def test_a_damaged_row_group_leaves_the_others(tmp_path, rows):
    path = tmp_path / "1.parquet"
    damage_row_group(path, rows)
    problems = Problems(path, strict=False)
    table, numbers = read_parquet(path, problems)
    assert numbers == [0, 1, 2, 3, 8, 9, 10]
    assert table.to_pylist() == [rows[number] for number in numbers]
    (notice,) = problems.notices()
    assert (notice.row, notice.message.split(" (")[0]) == (4, "rows 4 to 7 cannot be read")
    with pytest.raises(StorageError, match=r"1\.parquet row 4: rows 4 to 7 cannot be read"):
        read_parquet(path, Problems(path, strict=True))


def test_text_that_is_not_utf8_is_lost_to_who_may_lose_it(tmp_path):
    path = tmp_path / "1.parquet"
    texts = pa.array([b"fine", b"fine", b"caf\xe9", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"response": texts, "step": [0, 1, 0, 1]}), path, row_group_size=2)
    problems = Problems(path, strict=False)
    table, numbers = read_parquet(path, problems)
    assert (table["response"].to_pylist(), numbers) == (["fine", "fine"], [0, 1])
    assert "rows 2 to 3 cannot be read" in str(problems.notices()[0])
    table, _ = read_parquet(path, Problems(path, strict=True))
    assert table["step"].to_pylist() == [0, 1, 0, 1]  # the texts may not be needed
