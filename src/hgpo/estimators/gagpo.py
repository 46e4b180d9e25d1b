"""GAGPO: generalised advantage estimation with the mean return of an observation's visits as its value.

Shapes: N steps. Source: arXiv 2605.13217, at second hand: from a description of it, not from the paper or its code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.estimators.advantages import Advantages
from hgpo.estimators.checks import check_choice, check_number
from hgpo.estimators.estimator import Estimator
from hgpo.estimators.normalise import BATCH_MODES, batch_scaled
from hgpo.estimators.temporal_credit import SeenReturns, temporal_credit
from hgpo.grouping import Runs, group_steps
from hgpo.returns import unpenalised_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GagpoOptions:
    """Options of GAGPO.

    Attributes:
        gae_lambda: in [0, 1]; 0 is the one-step temporal difference, 1 the return minus the value.
        mode: "none" leaves advantages in units of the return, "batch_std" divides all by their population std + 1e-6.
    """

    gae_lambda: float = 0.95
    mode: str = "none"

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        if check_number("gae_lambda", self.gae_lambda) > 1.0:
            raise ValueError(f"gae_lambda must be at most 1, got {self.gae_lambda!r}")
        check_choice("mode", self.mode, BATCH_MODES)


def gagpo(batch: StepBatch, gamma: float, options: GagpoOptions) -> Advantages:
    """A_t = sum_l (gamma lambda)^l delta_{t+l} - (penalty_t - mean penalty at o_t), float64[N].

        delta_t = r_t + gamma V(o_{t+1}) - V(o_t),   V(o) = mean discounted return of the task's steps that saw o

    V after a trajectory's last step is 0. There is no episode term.
    """
    groups = group_steps(batch, history_length=0)
    return_N = unpenalised_returns(batch, gamma)
    returns = SeenReturns.of(return_N, groups.row_N, Runs.from_starts(groups.starts[0]))
    advantage_N = temporal_credit(batch, returns, np.full(len(batch), float(options.gae_lambda)), gamma)
    return Advantages(batch_scaled(advantage_N, options.mode), return_N - batch.penalty)


GAGPO = Estimator("gagpo", gagpo, GagpoOptions, label="GAGPO")
