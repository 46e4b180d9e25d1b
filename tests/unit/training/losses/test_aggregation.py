from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgpo.config import Loss, LossAggregation
from hgpo.training.losses import LOSSES, masked_sum, token_weights, weighted_mean

AGGREGATIONS = get_args(LossAggregation)
ROWS = 2  # responses of a micro-batch of the aggregation that has them

# Three responses, of three tokens, one and two; what stands behind the end of one must not count.
LENGTHS = np.array([3, 1, 2])
MASK_BT = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
VALUE_BT = torch.tensor([[1.0, 2.0, 3.0], [10.0, float("nan"), float("inf")], [4.0, 6.0, float("nan")]])

lengths_of_rows = st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any)
names = st.sampled_from(AGGREGATIONS)


def weights(length_B, name):
    return token_weights(np.array(length_B), name, max_response_tokens=8, micro_batch_rows=ROWS)


def mean(value_BT, mask_BT, name):
    found = weights(mask_BT.sum(-1).numpy(), name)
    return weighted_mean(value_BT, mask_BT, value_BT.new_tensor(found.weight_B), found.divisor)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token-mean", (1 + 2 + 3 + 10 + 4 + 6) / 6),
        ("sequence-mean", (2 + 10 + 5) / 3),
        ("constant", (6 / 8 + 10 / 8 + 10 / 8) / 3),
        ("micro-batch-token-mean", ((1 + 2 + 3 + 10) / 4 + 5) / 2),
    ],
)
def test_by_hand(name, expected):
    assert mean(VALUE_BT, MASK_BT, name).item() == pytest.approx(expected)
    assert masked_sum(VALUE_BT, MASK_BT).item() == 26.0


def test_every_loss_of_the_settings_is_there_and_no_other():
    assert set(LOSSES) == set(get_args(Loss))


@given(lengths=lengths_of_rows, cuts=st.sets(st.integers(1, 7)), name=names)
def test_the_shares_of_parts_add_up_however_they_are_cut(lengths, cuts, name):
    mask_BT = torch.arange(6) < torch.tensor(lengths).unsqueeze(-1)
    value_BT = torch.arange(mask_BT.numel(), dtype=torch.float64).reshape(mask_BT.shape).sin()
    found = weights(lengths, name)
    weight_B = value_BT.new_tensor(found.weight_B)
    edges = [0, *sorted(cut for cut in cuts if cut < len(lengths)), len(lengths)]
    parts = []
    for first, last in pairwise(edges):
        width = max(lengths[first:last])  # a part is padded to its own longest response
        rows = (value_BT[first:last, :width], mask_BT[first:last, :width], weight_B[first:last])
        parts.append(weighted_mean(*rows, found.divisor))
    torch.testing.assert_close(sum(parts), mean(value_BT, mask_BT, name))


@given(lengths=lengths_of_rows, where=st.integers(0, 8), name=names)
def test_a_row_without_tokens_changes_nothing(lengths, where, name):
    padded = [*lengths[:where], 0, *lengths[where:]]
    alone, beside = weights(lengths, name), weights(padded, name)
    assert alone.divisor == beside.divisor
    assert [weight for weight, length in zip(beside.weight_B, padded, strict=True) if length] == [
        weight for weight, length in zip(alone.weight_B, lengths, strict=True) if length
    ]
    assert not beside.weight_B[np.array(padded) == 0].any()


@given(lengths=lengths_of_rows, name=names)
def test_the_mean_of_a_constant_is_that_constant(lengths, name):
    found = weights(lengths, name)
    total = (found.weight_B @ np.array(lengths)) / found.divisor
    expected = np.array(lengths).sum() / 8 / np.count_nonzero(lengths) if name == "constant" else 1
    assert total == pytest.approx(expected)
