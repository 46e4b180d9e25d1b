import json

import pyarrow as pa
import pytest

from hgpo.storage.schema import StorageError
from hgpo.storage.tables import read_parquet, write_table


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0], pa.timestamp("us")),
        pa.array([b"x"]),
        pa.array([[0]], pa.list_(pa.date32())),
        pa.array([{"at": 0}], pa.struct([("at", pa.time64("us"))])),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.decimal128(9, 2)),
    ],
)
def test_what_json_has_no_form_for_is_refused(tmp_path, column):
    table = pa.table({"step": [0], "when": column})
    with pytest.raises(StorageError, match=r"x\.jsonl: Object of type \w+ is not JSON serializable; write \.parquet"):
        write_table(tmp_path / "x.jsonl", table)
    assert not list(tmp_path.iterdir())
    write_table(tmp_path / "x.parquet", table)
    assert read_parquet(tmp_path / "x.parquet")["when"].to_pylist() == column.to_pylist()


def test_what_json_has_a_form_for_is_written(tmp_path):
    table = pa.table(
        {"words": pa.array(["a"]).dictionary_encode(), "ids": pa.array([[1, 2]], pa.list_(pa.int32())), "none": [None]}
    )
    write_table(tmp_path / "x.jsonl", table)
    assert [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()] == [
        {"schema_version": 1, "words": "a", "ids": [1, 2], "none": None}
    ]


def test_what_parquet_has_no_form_for_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"x\.parquet cannot be written as parquet: .*'note'"):
        write_table(tmp_path / "x.parquet", pa.table({"note": pa.array([{}])}))
    assert not list(tmp_path.iterdir())
