"""How far apart two policies are, estimated per token. Shape suffixes as in `tokens.py`."""

from __future__ import annotations

import torch

from hgpo.training.losses.tokens import MAX_LOG_RATIO

_MAX_KL = 10.0


def k3_divergence(log_prob_BT: torch.Tensor, reference_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """Low-variance estimate of KL(policy || reference) from sampled tokens ("low_var_kl"), per token.

        d = reference_log_prob - log_prob,   kl = exp(d) - d - 1  >= 0

    Unbiased for tokens sampled from the policy. Source: Schulman, "Approximating KL divergence" (2020). As in the
    published recipe, d is bounded to ±20 and kl to 10, so that a token the policy has all but given up cannot dominate.
    """
    difference_BT = (reference_log_prob_BT - log_prob_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (difference_BT.exp() - difference_BT - 1).clamp(max=_MAX_KL)


def approximate_kl(log_prob_BT: torch.Tensor, old_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """First-order estimate of KL(old || new) per token, old_log_prob - log_prob: how far the update has moved."""
    return (old_log_prob_BT - log_prob_BT).detach()
