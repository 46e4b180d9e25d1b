"""The terms of the policy loss, as pure functions of per-token tensors.

    loss = token_mean(policy_loss) + kl_coefficient · token_mean(kl) - entropy_coefficient · token_mean(entropy)

Shape suffixes: B rows, T response tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_MAX_LOG_RATIO = 20.0  # beyond it exp() only produces infinities; both sides are clipped by the loss long before
_MAX_KL = 10.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Per-token policy loss and what was clipped."""

    loss_BT: torch.Tensor
    ratio_BT: torch.Tensor
    clipped_BT: torch.Tensor  # bool: the clipped term was the larger one, so the token has no gradient
    dual_clipped_BT: torch.Tensor  # bool: the bound for negative advantages applied, so the token has no gradient


def clipped_policy_loss(
    log_prob_BT: torch.Tensor,
    old_log_prob_BT: torch.Tensor,
    advantage_BT: torch.Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = 3.0,
) -> PolicyLoss:
    """PPO's clipped surrogate with separate bounds and the dual clip, per token.

        ratio = exp(log_prob - old_log_prob)
        loss  = max(-A · ratio, -A · clip(ratio, 1 - clip_low, 1 + clip_high))
        loss  = min(loss, -A · dual_clip)   where A < 0

    Sources: PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7); dual clip (Ye et al. 2020, arXiv 1912.09729, eq. 5);
    separate upper bound (DAPO, Yu et al. 2025, arXiv 2503.14476). `advantage_BT` may be any shape that broadcasts.
    """
    ratio_BT = (log_prob_BT - old_log_prob_BT).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    advantage_BT = advantage_BT.expand_as(ratio_BT)
    plain_BT = -advantage_BT * ratio_BT
    bounded_BT = -advantage_BT * ratio_BT.clamp(1 - clip_low, 1 + clip_high)
    loss_BT = torch.maximum(plain_BT, bounded_BT)
    clipped_BT = bounded_BT > plain_BT
    dual_clipped_BT = torch.zeros_like(clipped_BT)
    if dual_clip is not None:
        bound_BT = -advantage_BT * dual_clip
        dual_clipped_BT = (advantage_BT < 0) & (loss_BT > bound_BT)
        loss_BT = torch.where(dual_clipped_BT, bound_BT, loss_BT)
    return PolicyLoss(loss_BT, ratio_BT.detach(), clipped_BT, dual_clipped_BT)


def k3_divergence(log_prob_BT: torch.Tensor, reference_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """Low-variance estimate of KL(policy || reference) from sampled tokens ("low_var_kl"), per token.

        d = reference_log_prob - log_prob,   kl = exp(d) - d - 1  >= 0

    Unbiased for tokens sampled from the policy. Source: Schulman, "Approximating KL divergence" (2020). As in the
    published recipe, d is bounded to ±20 and kl to 10, so that a token the policy has all but given up cannot dominate.
    """
    difference_BT = (reference_log_prob_BT - log_prob_BT).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    return (difference_BT.exp() - difference_BT - 1).clamp(max=_MAX_KL)


def masked_sum(value_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Sum over response tokens; whatever stands outside the mask, NaN included, contributes nothing."""
    return value_BT.masked_fill(~mask_BT, 0).sum()


def token_mean(value_BT: torch.Tensor, mask_BT: torch.Tensor, total_tokens: int) -> torch.Tensor:
    """Σ value over the response tokens here / response tokens of the whole mini-batch.

    Every token weighs the same, however long its response; over the micro-batches of a mini-batch the results add up to
    the mean.
    """
    return masked_sum(value_BT, mask_BT) / total_tokens


def approximate_kl(log_prob_BT: torch.Tensor, old_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """First-order estimate of KL(old || new) per token, old_log_prob - log_prob: how far the update has moved."""
    return (old_log_prob_BT - log_prob_BT).detach()
