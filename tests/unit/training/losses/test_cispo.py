import math

import pytest
import torch

from hgpo.training.losses import Clip, ResponseTokens, cispo_loss


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight"),
    [
        *((1.0, 2.0, 1.0), (1.1, 2.0, 1.1), (3.0, 2.0, 1.28), (0.5, 2.0, 0.9), (3.0, -1.0, 1.28), (0.5, -1.0, 0.9)),
        (1e200, 1.0, 1.28),  # infinite in float32
    ],
)
def test_the_gradient_is_the_clipped_weight_and_never_lost(ratio, advantage, weight):
    old = math.log(0.2)
    log_prob_BT = torch.tensor([[old + math.log(ratio)]], requires_grad=True)
    tokens = ResponseTokens(
        log_prob_BT, torch.tensor([[old]]), torch.tensor([[advantage]]), torch.ones(1, 1, dtype=torch.bool)
    )
    result = cispo_loss(tokens, Clip(low=0.1, high=0.28))
    result.loss_BT.sum().backward()
    assert log_prob_BT.grad.item() == pytest.approx(-advantage * weight)
    assert result.loss_BT.item() == pytest.approx(-advantage * weight * log_prob_BT.item())
    assert result.clipped_BT.item() == (ratio != pytest.approx(weight))
    assert not result.dual_clipped_BT.any()
