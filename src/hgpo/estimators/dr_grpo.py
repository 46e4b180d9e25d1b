"""Dr. GRPO: GRPO without the division by the standard deviation, which favours tasks with similar episode returns.

Shapes: N steps. Source: arXiv 2503.20783. The paper's second change, no normalisation by the response length, concerns
the loss and not the advantage.
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
        count: the mean of a task is over its trajectories ("trajectory") or over its steps ("step").
    """

    count: str = "trajectory"

    def __post_init__(self) -> None:
        check_choice("count", self.count, COUNTS)


def dr_grpo(batch: StepBatch, gamma: float, options: DrGrpoOptions) -> Advantages:
    """A = S - mean of S over the task, float64[N]; see `episode_level`.

    S is the undiscounted sum of the trajectory's rewards minus the step's own penalty. gamma affects only `.returns`.
    """
    return episode_advantages(batch, gamma, Normalisation("mean_norm"), options.count)


DR_GRPO = Estimator("dr_grpo", dr_grpo, DrGrpoOptions, label="Dr. GRPO")
