"""From a value per token to one number for the mini-batch.

Each function gives a micro-batch's share: over the micro-batches of a mini-batch the results add up to the whole,
however it is cut. What stands outside the mask, NaN included, contributes nothing. Shape suffixes as in `tokens.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class MiniBatchSize:
    """What the sums of a mini-batch are divided by.

    Attributes:
        tokens: response tokens in the whole mini-batch.
        responses: responses in the whole mini-batch.
        max_response_tokens: the length at which a response is cut.

    Example: two responses of 3 and 5 tokens, where 512 were allowed: `MiniBatchSize(8, 2, 512)`.
    """

    tokens: int
    responses: int
    max_response_tokens: int


def masked_sum(value_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Sum over response tokens; whatever stands outside the mask, NaN included, contributes nothing."""
    return value_BT.masked_fill(~mask_BT, 0).sum()


def token_mean(value_BT: torch.Tensor, mask_BT: torch.Tensor, total_tokens: int) -> torch.Tensor:
    """Σ value over the response tokens here / response tokens of the whole mini-batch.

    Every token weighs the same, however long its response. Source: DAPO (Yu et al. 2025, arXiv 2503.14476).
    """
    return masked_sum(value_BT, mask_BT) / total_tokens


def sequence_mean(value_BT: torch.Tensor, mask_BT: torch.Tensor, total_responses: int) -> torch.Tensor:
    """Σ_i (mean of value over the tokens of response i) / responses of the whole mini-batch.

    Every response weighs the same, so that a token of a long one weighs less. Source: GRPO (Shao et al. 2024, arXiv
    2402.03300).
    """
    mean_B = value_BT.masked_fill(~mask_BT, 0).sum(-1) / mask_BT.sum(-1).clamp(min=1)
    return mean_B.sum() / total_responses


def constant_mean(
    value_BT: torch.Tensor, mask_BT: torch.Tensor, total_responses: int, max_response_tokens: int
) -> torch.Tensor:
    """Σ value / `max_response_tokens` / responses of the whole mini-batch.

    Every token weighs the same in every mini-batch: neither its response's length nor the others' matters. Source:
    Dr. GRPO (Liu et al. 2025, arXiv 2503.20783).
    """
    return masked_sum(value_BT, mask_BT) / (total_responses * max_response_tokens)
