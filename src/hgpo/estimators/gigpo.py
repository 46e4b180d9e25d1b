"""GiGPO: episode advantage plus the advantage among steps with the same (or a similar) observation.

Shapes: N steps. Source: arXiv 2505.10978 and the published verl-agent code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hgpo.estimators.base import Advantages, Estimator, check_choice, check_number
from hgpo.estimators.levels import MODES, Matching, Normalisation, critic_level, episode_level, step_level
from hgpo.estimators.similarity import similar_observations
from hgpo.grouping import GroupedValues, group_steps
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class GigpoOptions:
    """Options of GiGPO.

    Attributes:
        mode: "mean_std_norm" divides both terms by their unbiased std + 1e-6, "mean_norm" divides by nothing.
        step_advantage_w: weight of the step term, at least 0.
        similarity_threshold: above 0 and at most 1: observations of a task whose texts have at least this similarity
            ratio count as the same, see `similar_observations`. None: only equal observations do.
        baseline: of the step term: "mean" of the group, or "critic": the critic's value (`critic_level`).
        match_threshold, match_by, match_kernel, match_own_trajectory: compare similar states, see `Matching`.
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0
    similarity_threshold: float | None = None
    baseline: str = "mean"
    match_threshold: float = 1.0
    match_by: str = "text"
    match_kernel: str = "uniform"
    match_own_trajectory: bool = True

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)
        threshold = self.similarity_threshold
        if threshold is not None and not 0.0 < check_number("similarity_threshold", threshold) <= 1.0:
            raise ValueError(f"similarity_threshold must be above 0 and at most 1, got {threshold!r}")
        check_choice("baseline", self.baseline, ("mean", "critic"))
        if Matching.of(self).soft and threshold is not None:
            raise ValueError("similarity_threshold and match_threshold both group similar states: leave one out")


def gigpo(batch: StepBatch, gamma: float, options: GigpoOptions) -> Advantages:
    """GiGPO advantages: A = A_episode + step_advantage_w * A_step for each step.

        A_episode = (S - mean over the steps of the task) / (std + 1e-6)     (see `episode_level`)
        A_step    = (R - mean of G_0) / (std of G_0 + 1e-6), 0 for a single member

    Both stds are unbiased (ddof 1); with mode="mean_norm" nothing is divided. With a similarity_threshold, G_0 are the
    steps of the task whose observations are similar; with a match_threshold below 1, mean and std are weighted over the
    steps in similar states (`hgpo.estimators.matches`). With baseline="critic", the critic's value replaces the mean.

    Raises:
        ValueError: an observation is not text, and similarity_threshold or match_by="text" compares texts.
    """
    grouped = batch
    if options.similarity_threshold is not None:
        grouped = replace(batch, observation=similar_observations(batch, float(options.similarity_threshold)))
    groups = group_steps(grouped, history_length=0)
    return_N, norm = discounted_returns(batch, gamma), Normalisation(options.mode)
    compared = GroupedValues(return_N[groups.row_N], discounted_magnitudes(batch, gamma, groups.row_N))
    episode = episode_level(batch, groups, norm)
    (matches,) = Matching.of(options).levels(batch, groups)
    step = step_level(0, groups, compared, norm, matches=matches)
    if options.baseline == "critic":
        step = critic_level(step, batch, gamma, norm)
    return Advantages.of(return_N, (episode, step.weighted(float(options.step_advantage_w))))


def level_names(options: GigpoOptions) -> tuple[str, ...]:
    """What the steps of a level-0 group have in common."""
    return (Matching.of(options).level_0 if options.similarity_threshold is None else "similar state",)


GIGPO = Estimator(
    "gigpo",
    gigpo,
    GigpoOptions,
    label="GiGPO",
    needs=lambda options: (("value",) if options.baseline == "critic" else ()) + Matching.of(options).needs,
    levels=level_names,
)
