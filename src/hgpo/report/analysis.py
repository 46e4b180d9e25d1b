"""One update under every estimator: the advantages and the figures of all its steps.

Shapes: N steps of the update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hgpo.estimators import Advantages, compute_advantages
from hgpo.estimators.diagnostics import BatchSummary, summarise_levels
from hgpo.estimators.transition_graph import won
from hgpo.report.consistency import Consistency, ConsistencyFigures, prompt_consistency
from hgpo.report.estimator_comparison import ShownEstimator, level_estimator, paper_settings
from hgpo.returns import total_rewards
from hgpo.steps import StepBatch
from hgpo.storage.reading import StoredBatch


@dataclass(frozen=True, slots=True)
class UpdateFigures:
    """Statistics of all steps of one update, for the overview.

    Attributes:
        update: its number.
        success: share of trajectories that won.
        reward: mean undiscounted sum of rewards.
        first_return: mean discounted return of the first steps.
        length: mean steps of a trajectory.
        summary: levels of the plotted estimator. The episode level is that of the training estimator if it was
            computed, and its name contains that estimator.
        consistency: one per level of HGPO, empty without prompts.
        disagreement: per pair of estimators, "key key" -> steps where both advantages are not 0, and those of them
            whose signs differ.
    """

    update: int
    success: float
    reward: float
    first_return: float
    length: float
    summary: BatchSummary
    consistency: tuple[ConsistencyFigures, ...]
    disagreement: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class AnalysedUpdate:
    """One update under every estimator.

    Attributes:
        steps: what was read.
        batch: the readable steps.
        figures: of all steps.
        advantages: by the estimator's key, of all steps.
        consistency: by level of HGPO.
    """

    steps: StoredBatch
    batch: StepBatch
    figures: UpdateFigures
    advantages: Mapping[str, Advantages]
    consistency: tuple[Consistency, ...]


def analyse(steps: StoredBatch, estimators: Sequence[ShownEstimator], gamma: float) -> AnalysedUpdate:
    """Compute every estimator that the columns allow, on all steps of the update.

    Raises:
        ValueError: the update lacks a column that the estimator whose levels are followed needs.
    """
    batch = steps.batch
    followed = level_estimator(estimators)
    advantages = {
        shown.key: compute_advantages(batch, shown.name, gamma, **shown.options)
        for shown in estimators
        if shown is followed or all(getattr(batch, column) is not None for column in shown.needs)
    }
    return_N = advantages[followed.key].returns
    options = paper_settings(estimators).parsed
    consistency = prompt_consistency(batch, return_N, options.history_length, options.mode)
    lengths_M = np.diff(batch.trajectory_start)
    figures = UpdateFigures(
        update=steps.update,
        success=float(won(batch).mean()),
        reward=float(total_rewards(batch).mean()),
        first_return=float(return_N[batch.order[batch.trajectory_start[:-1]]].mean()),
        length=float(lengths_M.mean()),
        summary=_summary(batch, advantages, estimators[0], followed),
        consistency=tuple(level.figures for level in consistency),
        disagreement=_disagreement(advantages),
    )
    return AnalysedUpdate(steps, batch, figures, advantages, consistency)


def _summary(
    batch: StepBatch, advantages: Mapping[str, Advantages], first: ShownEstimator, followed: ShownEstimator
) -> BatchSummary:
    """The plotted levels, with the episode level of the training estimator if it has one."""
    summary = summarise_levels(batch, advantages[followed.key])
    if followed is first or first.key not in advantages:
        return summary
    episode = summarise_levels(batch, advantages[first.key]).episode
    return replace(summary, episode=episode and replace(episode, name=f"{episode.name} ({first.label})"))


def _disagreement(advantages: Mapping[str, Advantages]) -> dict[str, tuple[int, int]]:
    signs = {key: np.sign(computed.values) for key, computed in advantages.items()}
    keys = list(signs)
    pairs = {}
    for place, first in enumerate(keys):
        for second in keys[place + 1 :]:
            product_N = signs[first] * signs[second]
            pairs[f"{first} {second}"] = (int(np.count_nonzero(product_N)), int(np.count_nonzero(product_N < 0)))
    return pairs
