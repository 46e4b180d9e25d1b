"""GSPO's loss: one probability ratio a response. Shape suffixes as in `tokens.py`."""

from __future__ import annotations

import torch

from hgpo.training.losses.tokens import Clip, PolicyLoss, ResponseTokens

_MAX_LOG_RATIO = 10.0  # of a mean over tokens; far above any clip


def gspo_loss(tokens: ResponseTokens, clip: Clip) -> PolicyLoss:
    """The clipped surrogate of the response's ratio, per token: a response is clipped as a whole.

        s_i    = exp(mean_t (log_prob_it - old_log_prob_it))
        s_it   = sg(s_i) · exp(log_prob_it - sg(log_prob_it))   (sg: no gradient; its value is s_i)
        loss   = max(-A · s_it, -A · clip(s_it, 1 - clip.low, 1 + clip.high))

    Its mean over a response's tokens has the value and the gradient of GSPO's own -A · s_i; there is no dual clip.
    The paper clips far closer than PPO does: at 1 - 3e-4 and 1 + 4e-4.

    Source: Zheng et al. 2025, arXiv 2507.18071; the form per token is the paper's GSPO-token.
    """
    log_prob_BT = tokens.log_prob_BT
    difference_BT = (log_prob_BT.detach() - tokens.old_log_prob_BT).masked_fill(~tokens.mask_BT, 0)
    length_B1 = tokens.mask_BT.sum(-1, keepdim=True).clamp(min=1)
    log_ratio_B1 = difference_BT.sum(-1, keepdim=True) / length_B1
    ratio_BT = (log_prob_BT - log_prob_BT.detach() + log_ratio_B1).clamp(max=_MAX_LOG_RATIO).exp()
    plain_BT = -tokens.advantage_B1 * ratio_BT
    bounded_BT = -tokens.advantage_B1 * ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    clipped_BT = bounded_BT > plain_BT
    return PolicyLoss(torch.maximum(plain_BT, bounded_BT), clipped_BT, torch.zeros_like(clipped_BT))
