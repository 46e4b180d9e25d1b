"""Generalised advantage estimation from a critic's values, which the caller provides.

Shapes: N steps, T steps of one trajectory. Source: arXiv 1506.02438.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.estimators.base import Advantages, Estimator, check_number, to_rows
from hgpo.returns import discounted_returns, discounted_suffix_sums
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
        delta_t = r_t + gamma V_{t+1} - V_t,   V_T = 0: the trajectory's last step ends the episode

    `.returns` are the discounted returns. A critic's regression target is `values + batch.penalty + batch.value`: with
    penalties in its values, delta would hand them on to earlier steps.
    """
    assert batch.value is not None, "`GAE.needs` says so"
    value_N = batch.value[batch.order]
    next_value_N = np.append(value_N[1:], 0.0)
    next_value_N[batch.trajectory_start[1:] - 1] = 0.0
    error_N = batch.reward[batch.order] + gamma * next_value_N - value_N
    advantage_N = discounted_suffix_sums(error_N, batch.trajectory_start, gamma * float(options.gae_lambda))
    return Advantages(to_rows(advantage_N, batch.order) - batch.penalty, discounted_returns(batch, gamma))


GAE = Estimator(
    "gae",
    gae,
    GaeOptions,
    label="GAE",
    needs=lambda options: ("value",),
    untrainable="needs a critic's values, and none is trained here",
)
