"""CISPO's loss: the importance weight is clipped, and no token loses its gradient. Shape suffixes as in `tokens.py`."""

from __future__ import annotations

import torch

from hgpo.training.losses.tokens import MAX_LOG_RATIO, Clip, PolicyLoss, ResponseTokens


def cispo_loss(tokens: ResponseTokens, clip: Clip) -> PolicyLoss:
    """REINFORCE with a clipped weight, per token.

        ratio = exp(log_prob - old_log_prob)
        loss  = -A · sg(clip(ratio, 1 - clip.low, 1 + clip.high)) · log_prob   (sg: no gradient)

    The loss's value says little, since log_prob stands in it; its gradient is what counts. There is no dual clip.

    Source: MiniMax-M1 (2025), arXiv 2506.13585. The paper tunes the upper bound alone and sets the lower
    one so that it never applies; `clip.low` near 1 comes to the same.
    """
    ratio_BT = (tokens.log_prob_BT.detach() - tokens.old_log_prob_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    weight_BT = ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    clipped_BT = weight_BT != ratio_BT
    loss_BT = -tokens.advantage_B1 * weight_BT * tokens.log_prob_BT
    return PolicyLoss(loss_BT, clipped_BT, torch.zeros_like(clipped_BT))
