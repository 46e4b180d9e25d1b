"""RLOO: a trajectory's episode return minus the mean of the other trajectories of its task.

Shapes: N steps, n trajectories of the task. Source: arXiv 2402.14740.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.estimators.base import Advantages, Estimator
from hgpo.estimators.levels import Normalisation, episode_advantages
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class RlooOptions:
    """RLOO has no options."""


def rloo(batch: StepBatch, gamma: float, options: RlooOptions) -> Advantages:
    """A_i = S_i - sum_{j != i} S_j / (n - 1), float64[N]; see `episode_level`.

    S is the undiscounted sum of rewards minus the step's own penalty; S_j is the mean over the steps of trajectory j. A
    is 0 in a task with one trajectory. gamma affects only `.returns`.
    """
    return episode_advantages(batch, gamma, Normalisation("mean_norm", "leave_one_out"))


RLOO = Estimator("rloo", rloo, RlooOptions, label="RLOO")
