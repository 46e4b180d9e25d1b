import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hgpo.report.document import Columns, TextStore, pack_payload
from packed_reports import read_column, unpack


@given(arrays(np.int64, st.integers(0, 20), elements=st.integers(-(2**31), 2**31 - 1)))
def test_integers_survive(values):
    columns = Columns()
    entry = columns.add(values)
    header, stored = unpack(pack_payload({"column": entry}, columns))
    assert read_column(header["column"], stored).tolist() == values.tolist()


@given(arrays(np.float64, st.integers(0, 20), elements=st.floats(width=32)))
def test_numbers_survive_in_32_bits(values):
    columns = Columns()
    entry = columns.add(values)
    np.testing.assert_array_equal(read_column(entry, columns.bytes()), values)


def test_equal_columns_are_stored_once():
    columns = Columns()
    first, again = columns.add(np.array([1, 2, 300])), columns.add(np.array([1, 2, 300]))
    assert first == again == {"type": "u2", "at": 0, "length": 3}
    assert len(columns.bytes()) == 6


def test_planes_put_alike_bytes_together():
    columns = Columns()
    columns.add(np.array([0x0102, 0x0103]))
    assert columns.bytes() == bytes([2, 3, 1, 1])


@given(st.lists(st.none() | st.text(alphabet="ab\n\r ", max_size=6)))
def test_every_text_can_be_put_together_again(texts):
    store = TextStore()
    numbers = [store.add(text) for text in texts]
    start, line = store.encoded()
    lines = store.lines
    for number, text in zip(numbers, texts, strict=True):
        found = "\n".join(lines[at] for at in line[start[number] : start[number + 1]]) if number else None
        assert found == text


def test_equal_texts_and_equal_lines_are_kept_once():
    store = TextStore()
    assert [store.add(text) for text in ("a\nb", None, "a\nc", "a\nb")] == [1, 0, 2, 1]
    assert store.lines == ["a", "b", "c"]
    assert [array.tolist() for array in store.encoded()] == [[0, 0, 2, 4], [0, 1, 0, 2]]
