"""Dr. GRPO: GRPO without the division by the standard deviation, which favours tasks whose scores are close together.

Shapes: N steps. Source: arXiv 2503.20783. Its second change, dropping the response-length normalisation, is a matter of
the loss and not of the advantage.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.estimators.base import Advantages, Estimator, check_choice
from hgpo.estimators.levels import COUNTS, Normalisation, episode_advantages
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class DrGrpoOptions:
    """Options of Dr. GRPO.

    Attributes:
        count: "trajectory" counts each trajectory of a task once, "step" once per step.
    """

    count: str = "trajectory"

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        check_choice("count", self.count, COUNTS)


def dr_grpo(batch: StepBatch, gamma: float, options: DrGrpoOptions) -> Advantages:
    """A = S - mean of the task, float64[N], S the undiscounted sum of rewards; see `episode_level`.

    gamma only enters `.returns`.
    """
    return episode_advantages(batch, gamma, Normalisation("mean_norm"), options.count)


DR_GRPO = Estimator("dr_grpo", dr_grpo, DrGrpoOptions, label="Dr. GRPO")
