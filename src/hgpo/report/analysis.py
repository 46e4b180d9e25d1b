"""One update under every estimator: the advantages and the figures of all its steps.

Shapes: N steps of the update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hgpo.estimators import Advantages, compute_advantages
from hgpo.estimators.diagnostics import BatchSummary, summarise_levels
from hgpo.estimators.transition_graph import won
from hgpo.report.comparison import ShownEstimator, level_estimator
from hgpo.report.consistency import Consistency, ConsistencyFigures, prompt_consistency
from hgpo.report.loading import UpdateSteps
from hgpo.returns import total_rewards
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class UpdateFigures:
    """All steps of one update in figures; the overview is made of these.

    Attributes:
        update: its number. success: share of trajectories that won. reward: mean undiscounted sum of rewards.
        first_return: mean discounted return of the first steps. length: mean steps of a trajectory.
        summary: of the estimator whose levels are followed. consistency: one per level, empty without prompts.
        disagreement: per pair of estimators, "key key" -> steps where both advantages are not 0, and those of them
            whose signs differ.

    Example: `UpdateFigures(...).summary.levels[1].usable_share`.
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

    Attributes: steps, batch: what was read. figures: of all steps. advantages: by the estimator's key, of all steps.
    consistency: by level.

    Example: `analyse(read_update(file), estimators, gamma=0.95).figures.success`.
    """

    steps: UpdateSteps
    batch: StepBatch
    figures: UpdateFigures
    advantages: Mapping[str, Advantages]
    consistency: tuple[Consistency, ...]


def analyse(steps: UpdateSteps, estimators: Sequence[ShownEstimator], gamma: float) -> AnalysedUpdate:
    """Compute every estimator that the columns allow, on all steps of the update.

    Raises:
        ValueError: the update has no readable steps.
    """
    if steps.batch is None:
        raise ValueError(f"update {steps.update} has no readable steps")
    batch = steps.batch
    advantages = {
        shown.key: compute_advantages(batch, shown.name, gamma, **shown.options)
        for shown in estimators
        if all(getattr(batch, column) is not None for column in shown.needs)
    }
    followed = level_estimator(tuple(estimators))
    return_N = advantages[followed.key].returns
    options = followed.options
    consistency = prompt_consistency(
        batch, return_N, options.get("history_length", 2), options.get("mode", "mean_std_norm")
    )
    lengths_M = np.diff(batch.trajectory_start)
    figures = UpdateFigures(
        update=steps.update,
        success=float(won(batch).mean()),
        reward=float(total_rewards(batch).mean()),
        first_return=float(return_N[batch.order[batch.trajectory_start[:-1]]].mean()),
        length=float(lengths_M.mean()),
        summary=summarise_levels(batch, advantages[followed.key]),
        consistency=tuple(level.figures for level in consistency),
        disagreement=_disagreement(advantages),
    )
    return AnalysedUpdate(steps, batch, figures, advantages, consistency)


def _disagreement(advantages: Mapping[str, Advantages]) -> dict[str, tuple[int, int]]:
    signs = {key: np.sign(computed.values) for key, computed in advantages.items()}
    keys = list(signs)
    pairs = {}
    for place, first in enumerate(keys):
        for second in keys[place + 1 :]:
            product_N = signs[first] * signs[second]
            pairs[f"{first} {second}"] = (int(np.count_nonzero(product_N)), int(np.count_nonzero(product_N < 0)))
    return pairs
