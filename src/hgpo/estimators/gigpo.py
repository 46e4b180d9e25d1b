"""GiGPO: episode advantage plus the advantage among steps with the same (or a similar) observation.

Shapes: N steps. Source: arXiv 2505.10978 and the published verl-agent code.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.estimators.base import Advantages, Estimator, check_choice, check_number
from hgpo.estimators.levels import MODES, Normalisation, critic_level, episode_level, step_level
from hgpo.estimators.neighbours import Matching
from hgpo.estimators.similarity import check_threshold, seen_as_similar
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
        """Raise ValueError for an option out of its range."""
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)
        check_threshold(self.similarity_threshold)
        check_choice("baseline", self.baseline, ("mean", "critic"))
        if Matching.of(self).soft and self.similarity_threshold is not None:
            raise ValueError("similarity_threshold and match_threshold both group similar states: leave one out")


def gigpo(batch: StepBatch, gamma: float, options: GigpoOptions) -> Advantages:
    """A = A_episode + step_advantage_w * A_step.

        A_episode = (S - mean over the steps of the task) / (std + 1e-6)     (see `episode_level`)
        A_step    = (R - mean of G_0) / (std of G_0 + 1e-6), 0 for a single member

    Both std are unbiased (ddof 1); with mode="mean_norm" nothing is divided. With a similarity_threshold, G_0 are the
    steps of the task whose observations are similar; with a match_threshold below 1, mean and std are weighted over the
    steps in similar states (`hgpo.estimators.matches`). With baseline="critic", the critic's value replaces the mean.

    Raises:
        ValueError: an observation is not text, and similarity_threshold or match_by="text" compares texts.
    """
    groups = group_steps(seen_as_similar(batch, options.similarity_threshold), history_length=0)
    return_N, norm = discounted_returns(batch, gamma), Normalisation(options.mode)
    compared = GroupedValues(return_N[groups.row_N], discounted_magnitudes(batch, gamma, groups.row_N))
    episode = episode_level(batch, groups, norm)
    (matches,) = Matching.of(options).levels(batch, groups)
    step = step_level(0, groups, compared, norm, batch.trajectory, matches=matches)
    if options.baseline == "critic":
        step = critic_level(step, batch, gamma, norm)
    return Advantages.of(return_N, (episode, step.weighted(float(options.step_advantage_w))))


def level_names(options: GigpoOptions) -> tuple[str, ...]:
    """What the steps of a group have in common."""
    return (Matching.of(options).level_0 if options.similarity_threshold is None else "similar state",)


GIGPO = Estimator(
    "gigpo",
    gigpo,
    GigpoOptions,
    label="GiGPO",
    needs=lambda options: (("value",) if options.baseline == "critic" else ()) + Matching.of(options).needs,
    levels=level_names,
)
