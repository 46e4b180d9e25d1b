"""GiGPO: episode advantage plus the advantage among steps with the same observation.

Shapes: N steps. Source: arXiv 2505.10978 and the published verl-agent code.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.estimators.advantages import Advantages, weighted_sum
from hgpo.estimators.episode import episode_level
from hgpo.estimators.normalise import MODES, check_choice, check_number
from hgpo.estimators.step_level import step_level
from hgpo.grouping import group_steps
from hgpo.returns import discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GigpoOptions:
    """Options of GiGPO.

    Attributes:
        mode: "mean_std_norm" divides both terms by their unbiased std + 1e-6, "mean_norm" neither.
        step_advantage_w: weight of the step term, at least 0.

    Example: `compute_advantages(batch, "gigpo", step_advantage_w=0.5)`.
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)


def gigpo(batch: StepBatch, gamma: float, options: GigpoOptions) -> Advantages:
    """A = A_episode + step_advantage_w * A_step.

        A_episode = (S - mean over the steps of the task) / (std + 1e-6)     (see `episode_level`)
        A_step    = (R - mean of G_0) / (std of G_0 + 1e-6), 0 for a single member

    Both std are unbiased (ddof 1); "mean_norm" leaves them out.
    """
    groups = group_steps(batch, history_length=0)
    return_N = discounted_returns(batch, gamma)
    episode = episode_level(batch, groups.row_N, groups.task_starts_N, options.mode)
    step = step_level(0, groups, return_N[groups.row_N], options.mode, "mean", ddof=1)
    step = step.weighted(float(options.step_advantage_w))
    return Advantages(weighted_sum((episode, step)), return_N, levels=(step,), episode=episode)
