import math

import pytest
import torch

from hgpo.training.losses import Clip, ResponseTokens, ppo_loss


def tokens(log_ratio_BT, advantage):
    return ResponseTokens(
        log_ratio_BT, torch.zeros_like(log_ratio_BT), torch.tensor([[advantage]]), torch.ones_like(log_ratio_BT).bool()
    )


def loss_at(ratio, advantage, **bounds):
    log_prob = torch.tensor([[math.log(ratio)]], requires_grad=True)
    result = ppo_loss(tokens(log_prob, advantage), Clip(**bounds))
    result.loss_BT.sum().backward()
    return result.loss_BT.item(), log_prob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # clipped at 1.2
        (0.5, 2.0, -1.0, -1.0),  # a likelier token is still wanted: no clip
        (1.0, -2.0, 2.0, 2.0),
        (0.5, -2.0, 1.6, 0.0),  # clipped at 0.8
        (1.5, -2.0, 3.0, 3.0),  # a less likely token is still wanted: no clip
        (4.0, -2.0, 6.0, 0.0),  # dual clip: -A · 3
        (4.0, 0.0, 0.0, 0.0),
    ],
)
def test_loss_and_gradient_by_hand(ratio, advantage, loss, gradient):
    assert loss_at(ratio, advantage) == pytest.approx((loss, gradient), abs=1e-6)


def test_bounds_are_separate():
    assert loss_at(1.5, 1.0, high=0.28)[0] == pytest.approx(-1.28)
    assert loss_at(0.5, -1.0, low=0.1, high=0.28)[0] == pytest.approx(0.9)


def test_without_dual_clip_the_loss_is_unbounded():
    assert loss_at(4.0, -2.0, dual=None)[0] == pytest.approx(8.0)


def test_what_was_clipped_is_reported():
    result = ppo_loss(tokens(torch.tensor([[1.0, 1.5, 0.5, 4.0]]).log(), -1.0), Clip())
    assert result.clipped_BT.tolist() == [[False, False, True, False]]
    assert result.dual_clipped_BT.tolist() == [[False, False, False, True]]


@pytest.mark.parametrize("dual", [3.0, None])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [-1000.0, 1000.0])
def test_extreme_ratios_stay_finite_and_so_do_their_gradients(log_ratio, advantage, dual):
    log_prob_BT = torch.tensor([[log_ratio]], requires_grad=True)
    loss_BT = ppo_loss(tokens(log_prob_BT, advantage), Clip(dual=dual)).loss_BT
    loss_BT.sum().backward()
    assert torch.isfinite(loss_BT).all()
    assert torch.isfinite(log_prob_BT.grad).all()
