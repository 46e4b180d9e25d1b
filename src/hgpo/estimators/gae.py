"""Generalised advantage estimation from a critic's values: the advantages of PPO, over agent steps and not tokens.

Shapes: N steps, T steps of one trajectory. Source: arXiv 1506.02438.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.columns import FloatArray
from hgpo.estimators.base import Advantages, Estimator, check_choice, check_number
from hgpo.estimators.levels import EPSILON, MODES
from hgpo.returns import discounted_errors, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GaeOptions:
    """Options of GAE.

    Attributes:
        gae_lambda: in [0, 1]; 0 is the one-step temporal difference, 1 the return minus the value.
        mode: "none" leaves advantages in units of the reward; "mean_norm" subtracts their mean over the batch,
            "mean_std_norm" also divides by their std (unbiased) + 1e-6, as verl and most implementations of PPO do.
    """

    gae_lambda: float = 0.95
    mode: str = "none"

    def __post_init__(self) -> None:
        if check_number("gae_lambda", self.gae_lambda) > 1.0:
            raise ValueError(f"gae_lambda must be from 0 to 1, got {self.gae_lambda!r}")
        check_choice("mode", self.mode, ("none", *MODES))


def gae(batch: StepBatch, gamma: float, options: GaeOptions) -> Advantages:
    """Discounted sum of temporal-difference errors minus the step's own penalty, float64[N].

        A_t = sum_{l=0}^{T-1-t} (gamma lambda)^l delta_{t+l} - penalty_t
        delta_t = r_t + gamma V_{t+1} - V_t,   V_T = bootstrap of the last step: 0 if it ended the episode

    `.returns` are the discounted returns minus penalties, without the critic's values.
    """
    advantage_N = discounted_errors(batch, gamma, options.gae_lambda) - batch.penalty
    if options.mode != "none":
        advantage_N -= advantage_N.mean()
    if options.mode == "mean_std_norm" and len(advantage_N) > 1:
        advantage_N /= advantage_N.std(ddof=1) + EPSILON
    return Advantages(advantage_N, discounted_returns(batch, gamma))


def value_targets(batch: StepBatch, gamma: float, target_lambda: float) -> FloatArray:
    """Targets of the critic: the lambda-return of every step, float64[N] in row order, units of the reward.

        target_t = V_t + sum_{l=0}^{T-1-t} (gamma lambda)^l delta_{t+l}

    lambda is `target_lambda`, and delta is defined in `gae`. Penalties are left out: if V contained them, delta would
    carry them to earlier steps. With lambda = 1 the target is the discounted return plus the discounted bootstrap.
    """
    assert batch.value is not None, "the caller estimated the values"
    return batch.value + discounted_errors(batch, gamma, target_lambda)


GAE = Estimator(
    "gae",
    gae,
    GaeOptions,
    label="PPO (GAE)",
    needs=lambda options: ("value",),
)
