import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.storage.reading import count_rows
from hgpo.storage.schema import StorageError
from hgpo.storage.tables import read_parquet, write_table


def test_a_file_without_its_end_has_no_rows(tmp_path, rows):
    path = tmp_path / "7.parquet"
    write_table(path, pa.Table.from_pylist(rows))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match=r"7\.parquet: no row can be read; it is not a parquet file or is damaged"):
        read_parquet(path)
    assert count_rows(path) == 0


def test_another_schema_version_is_refused(tmp_path, rows):
    path = tmp_path / "1.parquet"
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata({"hgpo_schema_version": "2"}), path)
    with pytest.raises(StorageError, match=r"1\.parquet: schema version 2; this release reads 1: write it again"):
        read_parquet(path)


def test_a_damaged_page_is_refused(tmp_path, rows):
    path = tmp_path / "1.parquet"
    write_table(path, pa.Table.from_pylist(rows))
    start = pq.read_metadata(path).row_group(0).column(4).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 40] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"1\.parquet: no row can be read"):
        read_parquet(path)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "1.parquet"
    texts = pa.array([b"fine", b"caf\xe9"]).view(pa.string())
    ids = {name: [0, 1] for name in ("group", "trajectory", "step", "observation", "reward")}
    pq.write_table(pa.table({"response": texts, **ids}), path)
    with pytest.raises(StorageError, match=r"1\.parquet: no row can be read.* UTF8"):
        read_parquet(path)


def test_a_name_of_two_columns_is_refused(tmp_path, rows):
    path, table = tmp_path / "1.parquet", pa.Table.from_pylist(rows)
    pq.write_table(table.append_column("group", table["trajectory"]), path)
    with pytest.raises(StorageError, match=r"1\.parquet: 2 columns are named 'group'; rename or remove one"):
        read_parquet(path)
