"""The terms of the loss, as pure functions of per-token tensors, and the correction for a sampler with other log-probs.

    loss = mean(policy_loss) + kl_coefficient · mean(kl) - entropy_coefficient · mean(entropy)

`LOSSES` are the policy losses by the names of `training.loss`; `token_weights` are the weights of tokens in the means
of `training.loss_aggregation`; docs/algorithms/losses.md compares both. A weighted mean can be computed in parts: the
parts of any micro-batches add up to the mini-batch's mean. Values outside the mask, NaN included, contribute nothing.

Shape suffixes: B responses, T tokens of the longest, N response tokens of an update, R responses with tokens,
M micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.config import Loss, LossAggregation
from hgpo.training.batching import Sample

MAX_LOG_RATIO = 20.0  # keeps exp() finite and above 0; the losses clip far below it
_MAX_SEQUENCE_LOG_RATIO = 10.0  # of GSPO's mean over tokens; far above any clip
_MAX_KL = 10.0


@dataclass(frozen=True, slots=True)
class ResponseTokens:
    """Sampled tokens and their log-probs under two policies.

    Attributes:
        log_prob_BT: under the policy that is trained, with gradient.
        old_log_prob_BT: under the policy before the update.
        advantage_B1: advantage of the response's step; any shape that broadcasts.
        mask_BT: bool, True for response tokens; values elsewhere are ignored.

    Example: one response of two tokens; the update has doubled the probability of the first:
    `ResponseTokens(tensor([[-1.0, -0.5]]), tensor([[-1.7, -0.5]]), tensor([[0.7]]), tensor([[True, True]]))`.
    """

    log_prob_BT: torch.Tensor
    old_log_prob_BT: torch.Tensor
    advantage_B1: torch.Tensor
    mask_BT: torch.Tensor


@dataclass(frozen=True, slots=True)
class Clip:
    """Bounds of the probability ratio.

    Attributes:
        low: the lower bound is 1 - low.
        high: the upper bound is 1 + high.
        dual: for PPO only: upper bound where the advantage is negative; None: no bound.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = 3.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Per-token policy loss and what was clipped.

    Attributes:
        loss_BT: loss per token, with gradient.
        clipped_BT: bool, the ratio's clip applied.
        dual_clipped_BT: bool, the bound for negative advantages applied, so the token has no gradient.

    Example: one token of ratio 1.5 and advantage 2, clipped at 1.2, has a loss of -2.4 and `clipped_BT` `[[True]]`.
    """

    loss_BT: torch.Tensor
    clipped_BT: torch.Tensor
    dual_clipped_BT: torch.Tensor


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """The weights of tokens in the mean of a mini-batch: mean = Σ_i weight_i Σ_t value_it / divisor.

    Attributes:
        weight_B: weight of every token of a response; 0 for a response without tokens.
        divisor: divisor of the weighted sum. If several processes share a mini-batch: the sum of their divisors.
    """

    weight_B: NDArray[np.float64]
    divisor: float


def value_loss(
    value_B: torch.Tensor, target_B: torch.Tensor, old_B: torch.Tensor, clip: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The clipped value loss, float32[B], and where the clip applied, bool[B].

        loss = max((V - target)², (clamp(V, old - clip, old + clip) - target)²) / 2

    Source: the PPO implementation of OpenAI baselines. With `clip` None, it is half the squared error.
    """
    error_B = (value_B - target_B).square()
    if clip is None:
        return error_B / 2, torch.zeros_like(error_B, dtype=torch.bool)
    clipped_B = (value_B.clamp(old_B - clip, old_B + clip) - target_B).square()
    return torch.maximum(error_B, clipped_B) / 2, clipped_B > error_B


def value_loss_parts(
    value_B: torch.Tensor, samples: Sequence[Sample], clip: float | None, total_samples: int
) -> dict[str, torch.Tensor]:
    """The share that these samples have in the mini-batch's mean value loss, and in the share of clipped values."""
    values = [sample.value for sample in samples if sample.value is not None]
    target_B, old_B = (value_B.new_tensor([getattr(value, name) for value in values]) for name in ("target", "old"))
    loss_B, clipped_B = value_loss(value_B, target_B, old_B, clip)
    return {"critic_loss": loss_B.sum() / total_samples, "critic_clip_fraction": clipped_B.sum() / total_samples}


def explained_variance(target_N: NDArray[np.float64], value_N: NDArray[np.float64]) -> float:
    """1 - Var(target - value) / Var(target): 1 for exact values, 0 for a constant; 0 where all targets are equal."""
    variance = float(target_N.var())
    return 1.0 - float((target_N - value_N).var()) / variance if variance > 0 else 0.0


def masked_sum(value_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Sum over response tokens."""
    return value_BT.masked_fill(~mask_BT, 0).sum()


def token_weights(
    length_B: NDArray[np.int64], aggregation: LossAggregation, *, max_response_tokens: int, micro_batch_rows: int
) -> TokenWeights:
    """The weights of tokens under an aggregation. Responses without tokens count nowhere.

        token-mean              1                            / tokens         every token weighs the same
        sequence-mean           1 / length_i                 / responses      every response weighs the same
        constant                1 / max_response_tokens      / responses      weights do not depend on lengths
        micro-batch-token-mean  1 / tokens of i's micro-batch / micro-batches  every micro-batch weighs the same

    Sources: DAPO (Yu et al. 2025, arXiv 2503.14476); GRPO (Shao et al. 2024, arXiv 2402.03300); Dr. GRPO (Liu et al.
    2025, arXiv 2503.20783); the published code of HGPO, whose gradients of micro-batches are averaged.

    Args:
        length_B: number of tokens of each response.
        aggregation: name of the aggregation.
        max_response_tokens: the length at which a response is cut.
        micro_batch_rows: responses per micro-batch of "micro-batch-token-mean", in the order given; the last may have
            fewer. These micro-batches define the loss; how many samples are computed at a time does not.

    Example: lengths 1, 3 and 2 in micro-batches of two responses: `weight_B` [1/4, 1/4, 1/2], `divisor` 2.
    """
    row_R = np.flatnonzero(length_B)
    length_R = length_B[row_R].astype(np.float64)
    divisor = float(len(row_R))
    if aggregation == "token-mean":
        weight_R, divisor = np.ones(len(row_R)), float(length_R.sum())
    elif aggregation == "sequence-mean":
        weight_R = 1 / length_R
    elif aggregation == "constant":
        weight_R = np.full(len(row_R), 1 / max_response_tokens)
    else:
        micro_batch_R = np.arange(len(row_R)) // micro_batch_rows
        tokens_M = np.bincount(micro_batch_R, length_R)
        weight_R, divisor = 1 / tokens_M[micro_batch_R], float(len(tokens_M))
    weight_B = np.zeros(len(length_B))
    weight_B[row_R] = weight_R
    return TokenWeights(weight_B, divisor)


def weighted_mean(
    value_BT: torch.Tensor, mask_BT: torch.Tensor, weight_B: torch.Tensor, divisor: float
) -> torch.Tensor:
    """Σ weight · value over the given responses' tokens / `divisor`: their part of the mini-batch's mean."""
    return masked_sum(value_BT * weight_B.unsqueeze(-1), mask_BT) / divisor


def token_mean(value_BT: torch.Tensor, mask_BT: torch.Tensor, total_tokens: int) -> torch.Tensor:
    """Σ value over the given responses' tokens / response tokens of the whole mini-batch."""
    return masked_sum(value_BT, mask_BT) / total_tokens


def k3_divergence(log_prob_BT: torch.Tensor, reference_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """Low-variance estimate of KL(policy || reference) from sampled tokens ("low_var_kl"), per token.

        d = reference_log_prob - log_prob,   kl = exp(d) - d - 1  >= 0

    Unbiased for tokens sampled from the policy. Source: Schulman, "Approximating KL divergence" (2020). As in the
    published recipe, d is bounded to ±20 and kl to 10, so that a very unlikely token cannot dominate the mean.
    """
    difference_BT = (reference_log_prob_BT - log_prob_BT).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (difference_BT.exp() - difference_BT - 1).clamp(max=_MAX_KL)


def approximate_kl(log_prob_BT: torch.Tensor, old_log_prob_BT: torch.Tensor) -> torch.Tensor:
    """First-order estimate of KL(old || new) per token, old_log_prob - log_prob: how far the update has moved."""
    return (old_log_prob_BT - log_prob_BT).detach()


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


def gspo_loss(tokens: ResponseTokens, clip: Clip) -> PolicyLoss:
    """The clipped surrogate of the response's ratio, per token: a response is clipped as a whole.

        s_i    = exp(mean_t (log_prob_it - old_log_prob_it))
        s_it   = sg(s_i) · exp(log_prob_it - sg(log_prob_it))   (sg: no gradient; its value is s_i)
        loss   = max(-A · s_it, -A · clip(s_it, 1 - clip.low, 1 + clip.high))

    Its mean over a response's tokens has the value and the gradient of GSPO's own -A · s_i; there is no dual clip.
    The paper's bounds are 1 - 3e-4 and 1 + 4e-4, far closer to 1 than PPO's.

    Source: Zheng et al. 2025, arXiv 2507.18071; the form per token is the paper's GSPO-token.
    """
    log_prob_BT = tokens.log_prob_BT
    difference_BT = (log_prob_BT.detach() - tokens.old_log_prob_BT).masked_fill(~tokens.mask_BT, 0)
    length_B1 = tokens.mask_BT.sum(-1, keepdim=True).clamp(min=1)
    log_ratio_B1 = difference_BT.sum(-1, keepdim=True) / length_B1
    ratio_BT = (log_prob_BT - log_prob_BT.detach() + log_ratio_B1).clamp(max=_MAX_SEQUENCE_LOG_RATIO).exp()
    plain_BT = -tokens.advantage_B1 * ratio_BT
    bounded_BT = -tokens.advantage_B1 * ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    clipped_BT = bounded_BT > plain_BT
    return PolicyLoss(torch.maximum(plain_BT, bounded_BT), clipped_BT, torch.zeros_like(clipped_BT))


def cispo_loss(tokens: ResponseTokens, clip: Clip) -> PolicyLoss:
    """REINFORCE with a clipped weight, per token.

        ratio = exp(log_prob - old_log_prob)
        loss  = -A · sg(clip(ratio, 1 - clip.low, 1 + clip.high)) · log_prob   (sg: no gradient)

    The weight is clipped, and no token loses its gradient. The value of the loss has no meaning. There is no dual clip.

    Source: MiniMax-M1 (2025), arXiv 2506.13585. The paper tunes only the upper bound and sets the lower
    one so that it never applies; `clip.low` near 1 has almost the same effect.
    """
    ratio_BT = (tokens.log_prob_BT.detach() - tokens.old_log_prob_BT).exp()
    weight_BT = ratio_BT.clamp(1 - clip.low, 1 + clip.high)
    clipped_BT = weight_BT != ratio_BT
    loss_BT = -tokens.advantage_B1 * weight_BT * tokens.log_prob_BT
    return PolicyLoss(loss_BT, clipped_BT, torch.zeros_like(clipped_BT))


LOSSES: dict[Loss, Callable[[ResponseTokens, Clip], PolicyLoss]] = {
    "ppo": ppo_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
}


def importance_weights(
    trainer_N: NDArray[np.float32], sampler_N: NDArray[np.float32], cap: float | None
) -> NDArray[np.float32]:
    """Truncated importance weight of every token, for a sampler whose arithmetic differs from the trainer's.

        w_t = min(exp(trainer_t - sampler_t), cap)

    Both log-probs are of the same token under the same model weights. w_t multiplies the token's policy loss, and the
    cap bounds its variance. Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training".

    Args:
        trainer_N: log-probs of the sampled tokens as the trainer computes them before the update.
        sampler_N: log-probs of the same tokens, recorded when they were sampled.
        cap: the largest weight; None: no bound.

    Example: probabilities 0.3 and 0.6 in the trainer, 0.2 and 0.1 in the sampler, with a cap of 2: `[1.5, 2.0]`.
    """
    weight_N: NDArray[np.float32] = np.exp((trainer_N - sampler_N).clip(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    return weight_N if cap is None else weight_N.clip(max=cap)


def sampler_mismatch(
    trainer_N: NDArray[np.float32], sampler_N: NDArray[np.float32], cap: float | None
) -> dict[str, float]:
    """Difference of sampler and trainer on the tokens of an update. Arguments as for `importance_weights`.

    Returns:
        `sampler_gap_mean` and `sampler_gap_max` of the absolute difference of log-probs;
        `sampler_effective_sample_size`, (Σ w)² / (N Σ w²), from 1/N to 1; and, with a cap, `sampler_clipped_share`,
        the share of tokens whose weight exceeded the cap. Empty if there are no tokens.
    """
    if not len(trainer_N):
        return {}
    gap_N = np.abs(trainer_N - sampler_N)
    weight_N = importance_weights(trainer_N, sampler_N, cap).astype(np.float64)
    figures = {
        "sampler_gap_mean": float(gap_N.mean(dtype=np.float64)),
        "sampler_gap_max": float(gap_N.max()),
        "sampler_effective_sample_size": float(weight_N.sum() ** 2 / (len(weight_N) * (weight_N**2).sum())),
    }
    if cap is not None:
        figures["sampler_clipped_share"] = float((importance_weights(trainer_N, sampler_N, None) > cap).mean())
    return figures
