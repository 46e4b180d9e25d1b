"""REINFORCE with the batch mean as baseline: a step's discounted return minus the mean over all steps of the batch.

Shapes: N steps. Source: Williams 1992; normalising over the batch instead of a group as in arXiv 2501.03262.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.estimators.base import Advantages, Estimator, check_choice
from hgpo.estimators.levels import MODES, Normalisation, normalised
from hgpo.grouping import GroupedValues, Runs, group_statistics
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class ReinforceOptions:
    """Options of REINFORCE.

    Attributes:
        mode: "mean_norm" subtracts the mean, "mean_std_norm" also divides by the batch's std (population) + 1e-6.
    """

    mode: str = "mean_norm"

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)


def reinforce(batch: StepBatch, gamma: float, options: ReinforceOptions) -> Advantages:
    """A = R - mean(R) or (R - mean(R)) / (std(R) + 1e-6), over the batch, float64[N]; R: return - penalty."""
    return_N = discounted_returns(batch, gamma)
    whole = Runs(start_G=np.zeros(1, dtype=np.int64), run_N=np.zeros(len(batch), dtype=np.int64))
    norm = Normalisation(options.mode, ddof=0)
    compared = GroupedValues(return_N, discounted_magnitudes(batch, gamma, np.arange(len(batch))))
    return Advantages(normalised(group_statistics(compared, whole, norm.ddof), whole, norm), return_N)


REINFORCE = Estimator("reinforce", reinforce, ReinforceOptions, label="REINFORCE")
