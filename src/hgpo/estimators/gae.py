"""Generalised advantage estimation from a critic's values: the advantages of PPO, between steps of an agent.

Shapes: N steps, T steps of one trajectory. Source: arXiv 1506.02438.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray
from hgpo.estimators.base import Advantages, Estimator, check_number, to_rows
from hgpo.returns import check_gamma, discounted_returns, discounted_suffix_sums
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GaeOptions:
    """Options of GAE.

    Attributes:
        gae_lambda: in [0, 1]; 0 is the one-step temporal difference, 1 the return minus the value.
    """

    gae_lambda: float = 0.95

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        if check_number("gae_lambda", self.gae_lambda) > 1.0:
            raise ValueError(f"gae_lambda must be at most 1, got {self.gae_lambda!r}")


def gae(batch: StepBatch, gamma: float, options: GaeOptions) -> Advantages:
    """Discounted sum of temporal-difference errors minus the step's own penalty, float64[N].

        A_t = sum_{l=0}^{T-1-t} (gamma lambda)^l delta_{t+l} - penalty_t
        delta_t = r_t + gamma V_{t+1} - V_t,   V_T = bootstrap of the last step: 0 where it ends the episode

    `.returns` are the discounted returns of the rewards.
    """
    advantage_N = discounted_errors(batch, gamma, options.gae_lambda)
    return Advantages(advantage_N - batch.penalty, discounted_returns(batch, gamma))


def value_targets(batch: StepBatch, gamma: float, target_lambda: float) -> FloatArray:
    """What a critic is trained towards: the lambda-return of every step, float64[N] in row order, units of the reward.

        target_t = V_t + sum_{l=0}^{T-1-t} (gamma lambda)^l delta_{t+l}

    Penalties are left out: with them in V, delta would pass them on to earlier steps. With `target_lambda` 1 it is the
    discounted return, plus the discounted bootstrap where a time limit cut the trajectory.
    """
    assert batch.value is not None, "the caller estimated the values"
    return batch.value + discounted_errors(batch, gamma, target_lambda)


def discounted_errors(batch: StepBatch, gamma: float, error_lambda: float) -> FloatArray:
    """The discounted sums of temporal-difference errors, float64[N] in row order; see `gae`."""
    assert batch.value is not None, "`GAE.needs` says so"
    value_N = batch.value[batch.order]
    next_value_N = np.append(value_N[1:], 0.0)
    last_M = batch.trajectory_start[1:] - 1
    next_value_N[last_M] = batch.bootstrap[batch.order][last_M]
    error_N = batch.reward[batch.order] + check_gamma(gamma) * next_value_N - value_N
    sum_N = discounted_suffix_sums(error_N, batch.trajectory_start, gamma * float(error_lambda))
    return to_rows(sum_N, batch.order)


GAE = Estimator(
    "gae",
    gae,
    GaeOptions,
    label="PPO (GAE)",
    needs=lambda options: ("value",),
)
