from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.policies.cache import cuts, length_buckets, pad_left, pad_right

SEQUENCES = [np.array([5, 6], dtype=np.int32), np.array([7], dtype=np.int32), np.array([], dtype=np.int32)]


def test_pad_left():
    ids_BP, mask_BP = pad_left(SEQUENCES, 9)
    assert ids_BP.tolist() == [[5, 6], [9, 7], [9, 9]]
    assert mask_BP.tolist() == [[True, True], [False, True], [False, False]]


def test_pad_right():
    ids_BT, mask_BT = pad_right(SEQUENCES, 9)
    assert ids_BT.tolist() == [[5, 6], [7, 9], [9, 9]]
    assert mask_BT.tolist() == [[True, True], [True, False], [False, False]]


def test_nothing_to_pad_or_cut():
    assert pad_right([], 0)[0].shape == (0, 0)
    assert pad_left([np.array([], dtype=np.int32)], 0)[0].shape == (1, 0)
    assert cuts([], overhead=5) == []


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


@pytest.mark.parametrize(
    ("overhead", "runs"), [(0, [(0, 1), (1, 2), (2, 4)]), (5, [(0, 2), (2, 4)]), (100, [(0, 4)])], ids=str
)
def test_cuts_weigh_padding_against_forward_passes(overhead, runs):
    assert cuts([9, 8, 3, 3], overhead=overhead) == [slice(*run) for run in runs]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=7), st.integers(0, 30))
def test_no_other_cuts_cost_less(lengths, overhead):
    lengths = sorted(lengths, reverse=True)

    def cost(borders):
        starts = [0, *borders]
        ends = [*borders, len(lengths)]
        return sum((end - start) * lengths[start] + overhead for start, end in zip(starts, ends, strict=True))

    found = cuts(lengths, overhead=overhead)
    assert [index for run in found for index in range(run.start, run.stop)] == list(range(len(lengths)))
    positions = range(1, len(lengths))
    cheapest = min(cost(borders) for count in range(len(lengths)) for borders in combinations(positions, count))
    assert cost([run.start for run in found[1:]]) == cheapest
