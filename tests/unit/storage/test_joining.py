from pathlib import Path

import pyarrow as pa
import pytest

from hgpo.storage.schema import StorageError
from hgpo.storage.tables import join_tables, joined_ids


def joined(*columns, name="c"):
    """The values and the type of one column of several files."""
    files = [Path(f"{place}.parquet") for place in range(len(columns))]
    column = join_tables([pa.table({name: column}) for column in columns], files)[name]
    return column.to_pylist(), column.type


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
        (pa.array([1], pa.int32()), pa.array([2]), pa.int64()),
        (pa.array([1]), pa.array([0.5]), pa.float64()),
        (pa.array([None]), pa.array(["b"]), pa.string()),
        (pa.array([[1]]), pa.array([[2]], pa.list_(pa.int32())), pa.list_(pa.int64())),
    ],
)
def test_columns_of_equal_meaning_are_joined(first, second, kind):
    for one, other in ((first, second), (second, first)):
        assert joined(one, other) == (one.to_pylist() + other.to_pylist(), kind)


def test_a_file_without_a_column_has_nulls_in_it():
    tables = [pa.table({"a": [1]}), pa.table({"a": [2], "b": ["x"]})]
    assert join_tables(tables, [Path("0"), Path("1")]).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_types_that_cannot_be_joined_name_the_column() -> None:
    with pytest.raises(StorageError, match=r"the files cannot be joined \(.*group.*\); .*ids as text, numbers without"):
        joined(pa.array([None]), pa.array([1]), pa.array(["a"]), name="group")


def test_integers_that_floats_cannot_represent_are_rejected() -> None:
    with pytest.raises(StorageError, match=r"the files cannot be joined \(.*1152921504606846977"):
        joined(pa.array([2**60 + 1]), pa.array([0.5]), name="group")


def test_ids_are_joined_in_one_way_per_file():
    assert joined_ids(["a", "a/b", 1], ["b", "c", None]) == ["a/b", "a/b/c", None]
    assert joined_ids(["a", "a/b", 1], ["b/c", "c", 2]) == ['["a", "b/c"]', '["a/b", "c"]', "[1, 2]"]
