import math

import pytest
import torch

from hgpo.training.losses import Clip, ResponseTokens, gspo_loss, masked_sum

NAN = float("nan")


def of(log_prob_BT, advantages):
    """Old log-probs are 0 and NaN stands where a response has ended."""
    mask_BT = ~log_prob_BT.isnan()
    return ResponseTokens(
        log_prob_BT.nan_to_num(7.0), torch.zeros_like(log_prob_BT), torch.tensor(advantages).unsqueeze(-1), mask_BT
    )


def test_the_ratio_is_the_geometric_mean_over_the_response():
    log_prob_BT = torch.tensor([[1.1, 1.21, NAN], [1.0, 0.8, 1.25]]).log()
    result = gspo_loss(of(log_prob_BT, [2.0, -1.0]), Clip())
    ratio = math.sqrt(1.1 * 1.21)
    assert result.loss_BT[0, :2].tolist() == pytest.approx([-2 * ratio] * 2)
    assert result.loss_BT[1].tolist() == pytest.approx([1.0] * 3)
    assert not result.clipped_BT.any()


def test_a_response_is_clipped_as_a_whole_and_has_no_gradient_then():
    # The second token alone would not be clipped, and no token of the second response is, whatever its ratio.
    log_prob_BT = torch.tensor([[4.0, 1.0], [4.0, 0.25]]).log().requires_grad_()
    result = gspo_loss(of(log_prob_BT, [1.0, 1.0]), Clip())
    assert result.clipped_BT.tolist() == [[True, True], [False, False]]
    assert not result.dual_clipped_BT.any()
    assert result.loss_BT[0].tolist() == pytest.approx([-1.2, -1.2])
    result.loss_BT.sum().backward()
    assert log_prob_BT.grad.tolist() == [[0.0, 0.0], pytest.approx([-1.0, -1.0])]


def test_bounds_are_separate():
    result = gspo_loss(of(torch.tensor([[1.5], [0.5]]).log(), [1.0, -1.0]), Clip(low=0.1, high=0.3))
    assert result.loss_BT.flatten().tolist() == pytest.approx([-1.3, 0.9])


def test_there_is_no_dual_clip():
    result = gspo_loss(of(torch.tensor([[9.0]]).log(), [-1.0]), Clip(dual=3.0))
    assert result.loss_BT.item() == pytest.approx(9.0)


def test_the_mean_over_a_response_has_value_and_gradient_of_the_papers_objective_per_sequence():
    generator = torch.Generator().manual_seed(0)
    values_BT = torch.randn(6, 5, generator=generator) * 0.3
    for row, length in enumerate([5, 1, 3, 4, 2, 5]):
        values_BT[row, length:] = NAN
    advantages = [1.0, -0.5, 2.0, -1.0, 0.3, -2.0]
    form, paper = (values_BT.clone().requires_grad_() for _ in range(2))
    tokens = of(form, advantages)
    share_BT = gspo_loss(tokens, Clip()).loss_BT / tokens.mask_BT.sum(-1, keepdim=True)
    (masked_sum(share_BT, tokens.mask_BT) / 6).backward()
    terms = []
    for row, advantage in zip(paper, advantages, strict=True):
        ratio = row[~row.isnan()].mean().exp()
        terms.append(-torch.minimum(advantage * ratio, advantage * ratio.clamp(0.8, 1.2)))
    torch.stack(terms).mean().backward()
    assert (paper.grad != 0).any()
    torch.testing.assert_close(form.grad.nan_to_num(), paper.grad.nan_to_num())


def test_an_empty_row_and_extreme_ratios_stay_finite():
    for value in (-1000.0, 1000.0, NAN):
        assert torch.isfinite(gspo_loss(of(torch.tensor([[value, value]]), [-1.0]), Clip()).loss_BT).all()
