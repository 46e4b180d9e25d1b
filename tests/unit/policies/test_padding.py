import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.policies.padding import length_buckets, pad_left, pad_right

SEQUENCES = [np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32), np.array([], dtype=np.int32)]


def test_pad_left():
    ids_BP, mask_BP = pad_left(SEQUENCES, 9)
    assert ids_BP.tolist() == [[5, 6], [9, 7], [9, 9]]
    assert mask_BP.tolist() == [[True, True], [False, True], [False, False]]


def test_pad_right():
    ids_BT, mask_BT = pad_right(SEQUENCES, 9)
    assert ids_BT.tolist() == [[5, 6], [7, 9], [9, 9]]
    assert mask_BT.tolist() == [[True, True], [True, False], [False, False]]


def test_nothing_to_pad():
    assert pad_right([], 0)[0].shape == (0, 0)
    assert pad_left([np.array([], dtype=np.int32)], 0)[0].shape == (1, 0)


def test_buckets_of_similar_length():
    assert [bucket.tolist() for bucket in length_buckets([3, 9, 4, 8], max_tokens=18)] == [[1, 3], [2, 0]]


@pytest.mark.parametrize(("max_rows", "sizes"), [(None, [4, 1]), (3, [3, 2]), (1, [1] * 5)])
def test_row_limit(max_rows, sizes):
    assert [len(bucket) for bucket in length_buckets([2] * 5, max_tokens=8, max_rows=max_rows)] == sizes


@given(st.lists(st.integers(0, 50)), st.integers(1, 100))
def test_every_index_once_and_no_bucket_over_budget(lengths, max_tokens):
    buckets = length_buckets(lengths, max_tokens=max_tokens)
    assert sorted(index for bucket in buckets for index in bucket.tolist()) == list(range(len(lengths)))
    for bucket in buckets:
        assert len(bucket) == 1 or len(bucket) * max(lengths[index] for index in bucket) <= max_tokens
