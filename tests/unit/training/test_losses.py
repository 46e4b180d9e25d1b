import math

import pytest
import torch

from hgpo.training.losses import approximate_kl, clipped_policy_loss, k3_divergence, masked_sum, token_mean


def loss_at(ratio, advantage, **bounds):
    log_prob = torch.tensor([[math.log(ratio)]], requires_grad=True)
    result = clipped_policy_loss(log_prob, torch.zeros(1, 1), torch.tensor([[advantage]]), **bounds)
    result.loss_BT.sum().backward()
    return result, result.loss_BT.item(), log_prob.grad.item()


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
def test_clipped_policy_loss_by_hand(ratio, advantage, loss, gradient):
    _, actual, actual_gradient = loss_at(ratio, advantage)
    assert actual == pytest.approx(loss, abs=1e-6)
    assert actual_gradient == pytest.approx(gradient, abs=1e-6)


def test_bounds_are_separate():
    assert loss_at(1.5, 1.0, clip_high=0.28)[1] == pytest.approx(-1.28)
    assert loss_at(0.5, -1.0, clip_low=0.1, clip_high=0.28)[1] == pytest.approx(0.9)


def test_without_dual_clip_the_loss_is_unbounded():
    assert loss_at(4.0, -2.0, dual_clip=None)[1] == pytest.approx(8.0)


def test_what_was_clipped_is_reported():
    log_ratio = torch.tensor([[1.0, 1.5, 0.5, 4.0]]).log()
    result = clipped_policy_loss(log_ratio, torch.zeros(1, 4), torch.tensor([[-1.0]]))
    assert result.clipped_BT.tolist() == [[False, False, True, False]]
    assert result.dual_clipped_BT.tolist() == [[False, False, False, True]]
    torch.testing.assert_close(result.ratio_BT, torch.tensor([[1.0, 1.5, 0.5, 4.0]]))


def test_extreme_ratios_stay_finite():
    for log_prob in (-1000.0, 1000.0):
        result = clipped_policy_loss(torch.tensor([[log_prob]]), torch.zeros(1, 1), torch.tensor([[-1.0]]))
        assert torch.isfinite(result.loss_BT).all()


def test_k3_by_hand():
    # d = log 2: 2 - log 2 - 1;  d = -log 2: 1/2 + log 2 - 1
    log_prob = torch.tensor([[0.25, 0.5, 0.3]]).log()
    reference = torch.tensor([[0.5, 0.25, 0.3]]).log()
    expected = torch.tensor([[1 - math.log(2), math.log(2) - 0.5, 0.0]])
    torch.testing.assert_close(k3_divergence(log_prob, reference), expected)


def test_k3_is_unbiased():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.5, 0.3, 0.2]).log()
    exact = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close((policy.exp() * k3_divergence(policy, reference)).sum(), exact)


def test_k3_is_bounded():
    assert k3_divergence(torch.tensor([-100.0]), torch.tensor([0.0])).item() == 10.0


def test_token_mean_counts_tokens_not_responses():
    value_BT = torch.tensor([[1.0, 2.0, 3.0], [10.0, float("nan"), float("inf")]])
    mask_BT = torch.tensor([[True, True, True], [True, False, False]])
    assert masked_sum(value_BT, mask_BT).item() == 16.0
    assert token_mean(value_BT, mask_BT, 4).item() == 4.0
    assert token_mean(value_BT[:1], mask_BT[:1], 4) + token_mean(value_BT[1:], mask_BT[1:], 4) == 4.0


def test_approximate_kl():
    log_prob = torch.tensor([-1.0], requires_grad=True)
    estimate = approximate_kl(log_prob, torch.tensor([-0.5]))
    assert estimate.item() == 0.5
    assert not estimate.requires_grad
