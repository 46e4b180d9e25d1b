"""Truncated importance sampling: the correction for a sampler whose arithmetic is not the trainer's.

    w_t = min(exp(old_trainer_t - old_sampler_t), cap)

Both log-probs are of the same weights and the same sampled token; they differ where sampler and trainer compute with
other kernels or another precision. The weight multiplies the token's policy loss, and the cap bounds its variance.
Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".

Shape suffix: N response tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MAX_LOG_WEIGHT = 20.0  # either way: keeps exp() finite and above 0


def importance_weights(
    trainer_N: NDArray[np.float32], sampler_N: NDArray[np.float32], cap: float | None
) -> NDArray[np.float32]:
    """w of every token; above 1 where the sampler drew it less often than the trainer's policy would have.

    Args:
        trainer_N: log-probs of the sampled tokens as the trainer computes them before the update.
        sampler_N: log-probs of the same tokens, recorded when they were sampled.
        cap: the largest weight; None: no bound.

    Example: probabilities 0.3 and 0.6 in the trainer, 0.2 and 0.1 in the sampler, with a cap of 2: `[1.5, 2.0]`.
    """
    weight_N: NDArray[np.float32] = np.exp((trainer_N - sampler_N).clip(-_MAX_LOG_WEIGHT, _MAX_LOG_WEIGHT))
    return weight_N if cap is None else weight_N.clip(max=cap)


def sampler_mismatch(
    trainer_N: NDArray[np.float32], sampler_N: NDArray[np.float32], cap: float | None
) -> dict[str, float]:
    """How far sampler and trainer are apart on the tokens of an update. Arguments as for `importance_weights`.

    Returns:
        `sampler_gap_mean` and `sampler_gap_max`, of the absolute difference of log-probs;
        `sampler_effective_sample_size`, (Σ w)² / (N Σ w²), from 1/N to 1; and, with a cap, `sampler_clipped_share`,
        the share of tokens whose weight it bounded. Nothing where there are no tokens.
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
