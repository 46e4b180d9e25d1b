"""What a policy loss is computed from, and what it gives, for each token of a micro-batch's responses.

Shape suffixes: B responses, T tokens of the longest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

MAX_LOG_RATIO = 20.0  # beyond it exp() only produces infinities; both sides are clipped by the loss long before


@dataclass(frozen=True, slots=True)
class ResponseTokens:
    """Sampled tokens and what two policies think of them.

    Attributes:
        log_prob_BT: under the policy that is trained, with gradient.
        old_log_prob_BT: under the policy before the update.
        advantage_B1: of the step that a response belongs to; any shape that broadcasts.
        mask_BT: bool, a token of the response; what stands elsewhere means nothing.

    Example: one response of two tokens, of which the update has made the first twice as likely:
    `ResponseTokens(tensor([[-1.0, -0.5]]), tensor([[-1.7, -0.5]]), tensor([[0.7]]), tensor([[True, True]]))`.
    """

    log_prob_BT: torch.Tensor
    old_log_prob_BT: torch.Tensor
    advantage_B1: torch.Tensor
    mask_BT: torch.Tensor


@dataclass(frozen=True, slots=True)
class Clip:
    """Where a probability ratio is clipped.

    Attributes:
        low: from below at 1 - low.
        high: from above at 1 + high.
        dual: PPO's bound on the ratio where the advantage is negative; None: no bound.

    Example: the published recipe's `Clip(low=0.2, high=0.2, dual=3.0)`.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = 3.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Per-token policy loss and what was clipped.

    Attributes:
        loss_BT: with gradient.
        clipped_BT: bool, the ratio's clip applied.
        dual_clipped_BT: bool, the bound for negative advantages applied, so the token has no gradient.

    Example: one token of ratio 1.5 and advantage 2, clipped at 1.2, has a loss of -2.4 and `clipped_BT` `[[True]]`.
    """

    loss_BT: torch.Tensor
    clipped_BT: torch.Tensor
    dual_clipped_BT: torch.Tensor
