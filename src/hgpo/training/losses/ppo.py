"""PPO's clipped loss with separate bounds and the dual clip. Shape suffixes as in `tokens.py`."""

from __future__ import annotations

import torch

from hgpo.training.losses.tokens import MAX_LOG_RATIO, Clip, PolicyLoss, ResponseTokens


def ppo_loss(tokens: ResponseTokens, clip: Clip) -> PolicyLoss:
    """The clipped surrogate, per token; a clipped token has no gradient.

        ratio = exp(log_prob - old_log_prob)
        loss  = max(-A · ratio, -A · clip(ratio, 1 - clip.low, 1 + clip.high))
        loss  = min(loss, -A · clip.dual)   where A < 0

    Sources: PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7); dual clip (Ye et al. 2020, arXiv 1912.09729, eq. 5);
    separate upper bound (DAPO, Yu et al. 2025, arXiv 2503.14476).
    """
    ratio_BT = (tokens.log_prob_BT - tokens.old_log_prob_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    advantage_BT = tokens.advantage_B1.expand_as(ratio_BT)
    plain_BT = -advantage_BT * ratio_BT
    bounded_BT = -advantage_BT * ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    loss_BT = torch.maximum(plain_BT, bounded_BT)
    clipped_BT = bounded_BT > plain_BT
    dual_clipped_BT = torch.zeros_like(clipped_BT)
    if clip.dual is not None:
        bound_BT = -advantage_BT * clip.dual
        dual_clipped_BT = (advantage_BT < 0) & (loss_BT > bound_BT)
        loss_BT = torch.where(dual_clipped_BT, bound_BT, loss_BT)
    return PolicyLoss(loss_BT, clipped_BT, dual_clipped_BT)
