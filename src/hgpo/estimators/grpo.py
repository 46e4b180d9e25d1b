"""GRPO: every step of a trajectory gets the trajectory's episode return, normalised within its task.

Shapes: N steps, G tasks. Source: arXiv 2402.03300; counting by step is the published verl-agent variant.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.estimators.base import Advantages, Estimator, check_choice
from hgpo.estimators.levels import COUNTS, MODES, Normalisation, episode_advantages
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GrpoOptions:
    """Options of GRPO.

    Attributes:
        mode: "mean_std_norm" divides by the unbiased std + 1e-6, "mean_norm" does not.
        count: mean and std of a task are over its trajectories ("trajectory") or over its steps ("step").
    """

    mode: str = "mean_std_norm"
    count: str = "trajectory"

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("count", self.count, COUNTS)


def grpo(batch: StepBatch, gamma: float, options: GrpoOptions) -> Advantages:
    """A = (S - mean of S over the task) / (std of S over the task + 1e-6), float64[N]; see `episode_level`.

    S is the undiscounted sum of the trajectory's rewards minus the step's own penalty. gamma affects only `.returns`.
    """
    return episode_advantages(batch, gamma, Normalisation(options.mode), options.count)


GRPO = Estimator("grpo", grpo, GrpoOptions, label="GRPO")
