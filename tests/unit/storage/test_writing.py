import pyarrow as pa
import pytest

from hgpo.storage.reading import read_rollouts
from hgpo.storage.schema import StorageError
from hgpo.storage.tables import check_json_types, write_table


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
def test_what_json_has_no_form_for_is_refused_by_name(tmp_path, column):
    table = pa.table({"step": [0], "when": column})
    for refuse in (lambda path: check_json_types(path, table.schema), lambda path: write_table(path, table)):
        with pytest.raises(StorageError, match=r"x\.jsonl: JSON has no form for column 'when' .*write \.parquet"):
            refuse(tmp_path / "x.jsonl")
    assert not list(tmp_path.iterdir())
    write_table(tmp_path / "x.parquet", table)
    assert read_rollouts(tmp_path / "x.parquet")["when"].to_pylist() == column.to_pylist()


def test_what_json_has_a_form_for_is_written(tmp_path):
    table = pa.table(
        {"words": pa.array(["a"]).dictionary_encode(), "ids": pa.array([[1, 2]], pa.list_(pa.int32())), "none": [None]}
    )
    write_table(tmp_path / "x.jsonl", table)
    assert read_rollouts(tmp_path / "x.jsonl").to_pylist() == [{"words": "a", "ids": [1, 2], "none": None}]


def test_what_parquet_has_no_form_for_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"x\.parquet cannot be written as parquet: .*'note'"):
        write_table(tmp_path / "x.parquet", pa.table({"note": pa.array([{}])}))
    assert not list(tmp_path.iterdir())


def test_text_that_is_not_utf8_is_not_written_as_json(tmp_path):
    table = pa.table({"response": pa.array([b"caf\xe9"]).view(pa.string())})
    with pytest.raises(StorageError, match=r"x\.jsonl: column 'response' is not UTF-8"):
        write_table(tmp_path / "x.jsonl", table)
