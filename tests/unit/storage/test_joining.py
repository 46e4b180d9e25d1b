from pathlib import Path

import pyarrow as pa
import pytest

from hgpo.storage.reading import join_tables
from hgpo.storage.schema import StorageError


def joined(*columns, name="c"):
    """The values and the type of one column of several files."""
    files = [Path(f"{place}.parquet") for place in range(len(columns))]
    column = join_tables([pa.table({name: column}) for column in columns], files)[name]
    return column.to_pylist(), column.type


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string()),
        (pa.array(["a"]), pa.array(["b"], pa.large_string()).dictionary_encode(), pa.large_string()),
        (pa.array(["a"], pa.string_view()), pa.array(["b"]), pa.large_string()),
        (pa.array([1], pa.int32()), pa.array([2]), pa.int64()),
        (pa.array([1]), pa.array([0.5]), pa.float64()),
        (pa.array([None]), pa.array(["b"]), pa.string()),
        (pa.array([[1]]), pa.array([[2]], pa.list_(pa.int32())), pa.list_(pa.int64())),
    ],
)
def test_what_means_the_same_is_joined(first, second, kind):
    for one, other in ((first, second), (second, first)):
        assert joined(one, other) == (one.to_pylist() + other.to_pylist(), kind)


@pytest.mark.parametrize("name", ["success", "won", "reward"])
def test_truths_go_with_numbers_where_they_count_as_such(name):
    assert joined(pa.array([True, None]), pa.array([0]), name=name)[0] == [1, None, 0]
    assert joined(pa.array([True]), pa.array([None]), name=name) == ([True, None], pa.bool_())
    with pytest.raises(StorageError, match=r"1\.parquet: column 'group' is int64, but bool in 0\.parquet"):
        joined(pa.array([True]), pa.array([1]), name="group")


def test_a_file_without_a_column_has_nulls_in_it():
    tables = [pa.table({"a": [1]}), pa.table({"a": [2], "b": ["x"]})]
    assert join_tables(tables, [Path("0"), Path("1")]).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_kinds_that_do_not_go_together_name_the_column_and_both_files():
    message = r"2\.parquet: column 'group' is string, but int64 in 1\.parquet; .*ids as text, numbers without quotes"
    with pytest.raises(StorageError, match=message):
        joined(pa.array([None]), pa.array([1]), pa.array(["a"]), name="group")


def test_integers_that_fractions_cannot_hold_are_refused():
    with pytest.raises(StorageError, match=r"1\.parquet: column 'group' is double, but int64 in 0\.parquet"):
        joined(pa.array([2**60 + 1]), pa.array([0.5]), name="group")
