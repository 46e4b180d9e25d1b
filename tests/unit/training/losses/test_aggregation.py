from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgpo.config import TrainingSettings
from hgpo.training.losses import AGGREGATIONS, LOSSES, MiniBatchSize, masked_sum

# Two responses, of three tokens and of one; what stands behind the second's end must not count.
VALUE_BT = torch.tensor([[1.0, 2.0, 3.0], [10.0, float("nan"), float("inf")]])
MASK_BT = torch.tensor([[True, True, True], [True, False, False]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token-mean", (1 + 2 + 3 + 10) / 4),
        ("sequence-mean", (2 + 10) / 2),
        ("constant", (6 / 8 + 10 / 8) / 2),
    ],
)
def test_by_hand(name, expected):
    size = MiniBatchSize(tokens=4, responses=2, max_response_tokens=8)
    assert AGGREGATIONS[name](VALUE_BT, MASK_BT, size).item() == expected
    assert masked_sum(VALUE_BT, MASK_BT).item() == 16.0


def test_every_name_of_the_settings_is_there_and_no_other():
    assert set(AGGREGATIONS) == set(TrainingSettings.model_fields["loss_aggregation"].annotation.__args__)
    assert set(LOSSES) == set(TrainingSettings.model_fields["loss"].annotation.__args__)


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
    name=st.sampled_from(sorted(AGGREGATIONS)),
)
def test_the_shares_of_micro_batches_add_up_however_they_are_cut(lengths, cuts, name):
    mask_BT = torch.arange(6) < torch.tensor(lengths).unsqueeze(-1)
    value_BT = torch.arange(mask_BT.numel(), dtype=torch.float64).reshape(mask_BT.shape).sin()
    size = MiniBatchSize(sum(lengths), len(lengths), 6)
    edges = [0, *sorted(cut for cut in cuts if cut < len(lengths)), len(lengths)]
    parts = []
    for first, last in pairwise(edges):
        width = max(lengths[first:last])  # a micro-batch is padded to its own longest response
        parts.append(AGGREGATIONS[name](value_BT[first:last, :width], mask_BT[first:last, :width], size))
    torch.testing.assert_close(sum(parts), AGGREGATIONS[name](value_BT, mask_BT, size))
