"""One update under every estimator: advantages, metrics, and how often steps of one group had different prompts.

For every level k of HGPO (paper) the group of a step is split by prompt. A_k is the step's advantage in the whole
group, A_k' its advantage among members with its prompt. If no other member had the same prompt, A_k' is 0 and the step
is called *alone*.

Shapes: N steps, M trajectories, P steps in groups with different prompts, G groups. Arrays suffixed _N are in the
batch's row order unless a function specifies group order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators import Advantages, Level, compute_advantages
from hgpo.estimators.base import to_rows
from hgpo.estimators.diagnostics import BatchSummary, summarise_levels, variance_explained
from hgpo.estimators.levels import Normalisation, normalised
from hgpo.estimators.transition_graph import won
from hgpo.grouping import GroupedValues, Runs, changes, group_statistics
from hgpo.report.estimator_comparison import ReportEstimator, level_estimator, paper_settings
from hgpo.returns import total_rewards
from hgpo.steps import StepBatch
from hgpo.storage.reading import StoredBatch


@dataclass(frozen=True, slots=True)
class ConsistencyCounts:
    """One level of one update in counts, so that updates can be added up.

    Attributes:
        k: the level.
        groups: groups of two or more members.
        differ: those of `groups` whose prompts are not all equal.
        grouped_steps: steps in `groups`.
        steps: steps in `differ`. The following fields are about these steps.
        alone: steps with a prompt that no other member had.
        compared: steps whose A_k and A_k' are both not 0.
        flipped: those of `compared` whose signs differ.
        change: sum of |A_k - A_k'| over the steps that are not alone, in the advantage's units.
        explained: share of the variance of returns within groups that is between prompts, adjusted for the number of
            prompts (see `variance_explained`); None without such groups or variance.

    Example: a group of returns 0, 0, 1, 1 whose prompts are a, a, b, b has groups 1, differ 1, steps 4, alone 0, and
    explained 1.0: the prompts explain the returns completely.
    """

    k: int
    groups: int
    differ: int
    grouped_steps: int
    steps: int
    alone: int
    compared: int
    flipped: int
    change: float
    explained: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Consistency:
    """Counts of one level, and the columns they come from, [N].

    Attributes:
        counts: see `ConsistencyCounts`.
        differs_N: whether the step's group has different prompts.
        whole_N, split_N: A_k and A_k'.
    """

    counts: ConsistencyCounts
    differs_N: BoolArray
    whole_N: FloatArray
    split_N: FloatArray


@dataclass(frozen=True, slots=True)
class UpdateMetrics:
    """Statistics of all steps of one update, for the overview.

    Attributes:
        update: number of the update.
        success: share of trajectories that won; None if it is unknown which won.
        won_by: how it is known which trajectories won: `BY_COLUMN`, `BY_REWARDS` or `UNKNOWN`, see `trajectories_won`.
        reward: mean undiscounted sum of rewards.
        first_return: mean discounted return of the first steps.
        length: mean steps of a trajectory.
        summary: levels of the plotted estimator. The episode level belongs to the training estimator if this was
            computed; then the level's name contains the estimator.
        consistency: one per level of HGPO, empty without prompts.
        disagreement: pair of estimators, "key key" -> (number of steps where both advantages are not 0, number of these
            steps with different signs).
    """

    update: int
    success: float | None
    won_by: str
    reward: float
    first_return: float
    length: float
    summary: BatchSummary
    consistency: tuple[ConsistencyCounts, ...]
    disagreement: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class AnalysedUpdate:
    """One update under every estimator.

    Attributes:
        steps: the readable steps.
        metrics: statistics of all steps.
        advantages: key of the estimator -> advantages of all steps.
        consistency: one per level of HGPO.
        won_M: whether each trajectory won; None if it is unknown.
    """

    steps: StoredBatch
    metrics: UpdateMetrics
    advantages: Mapping[str, Advantages]
    consistency: tuple[Consistency, ...]
    won_M: BoolArray | None


BY_COLUMN, BY_REWARDS, UNKNOWN = "column", "rewards", "unknown"


def trajectories_won(batch: StepBatch) -> tuple[BoolArray | None, str]:
    """Whether each trajectory won, bool[M], and how this is known.

    The column `success` says it. Without the column, if the rewards of every trajectory sum to 0, 1 or -1, those with
    sum 1 won. Other sums may be partial scores, so None is returned.
    """
    if batch.success is not None:
        return won(batch), BY_COLUMN
    total_M = total_rewards(batch)
    if np.isclose(np.abs(total_M), np.round(np.abs(total_M)).clip(0, 1), rtol=0.0, atol=1e-6).all():
        return total_M > 0.5, BY_REWARDS
    return None, UNKNOWN


def analyse(steps: StoredBatch, estimators: Sequence[ReportEstimator], gamma: float) -> AnalysedUpdate:
    """Compute every estimator that the columns allow, on all steps of the update.

    Raises:
        ValueError: the update lacks a column that `level_estimator` needs.
    """
    batch = steps.batch
    shown = level_estimator(estimators)
    advantages = {
        one.key: compute_advantages(batch, one.name, gamma, **one.options)
        for one in estimators
        if one is shown or all(getattr(batch, column) is not None for column in one.needs)
    }
    return_N = advantages[shown.key].returns
    paper = paper_settings(estimators)
    consistency = prompt_consistency(batch, advantages[paper.key], paper.parsed.mode)
    lengths_M = np.diff(batch.trajectory_start)
    won_M, won_by = trajectories_won(batch)
    metrics = UpdateMetrics(
        update=steps.update,
        success=None if won_M is None else float(won_M.mean()),
        won_by=won_by,
        reward=float(total_rewards(batch).mean()),
        first_return=float(return_N[batch.order[batch.trajectory_start[:-1]]].mean()),
        length=float(lengths_M.mean()),
        summary=_summary(batch, advantages, estimators[0], shown),
        consistency=tuple(level.counts for level in consistency),
        disagreement=_disagreement(advantages),
    )
    return AnalysedUpdate(steps, metrics, advantages, consistency, won_M)


def _summary(
    batch: StepBatch, advantages: Mapping[str, Advantages], first: ReportEstimator, shown: ReportEstimator
) -> BatchSummary:
    """The plotted levels, with the episode level of the training estimator if it has one."""
    summary = summarise_levels(batch, advantages[shown.key])
    if shown is first or first.key not in advantages:
        return summary
    episode = summarise_levels(batch, advantages[first.key]).episode
    return replace(summary, episode=episode and replace(episode, name=f"{episode.name} ({first.label})"))


def _disagreement(advantages: Mapping[str, Advantages]) -> dict[str, tuple[int, int]]:
    signs = {key: np.sign(computed.values) for key, computed in advantages.items()}
    pairs = {}
    for first, second in combinations(signs, 2):
        product_N = signs[first] * signs[second]
        pairs[f"{first} {second}"] = (int(np.count_nonzero(product_N)), int(np.count_nonzero(product_N < 0)))
    return pairs


def prompt_consistency(batch: StepBatch, paper: Advantages, mode: str) -> tuple[Consistency, ...]:
    """The consistency of each level; empty if the batch has no prompts.

    Args:
        batch: the steps.
        paper: their advantages by HGPO with the paper's settings.
        mode: the mode of these advantages.
    """
    if batch.prompt is None:
        return ()
    how = Normalisation(mode, ddof=0)
    return tuple(_level(k, whole, batch.prompt[whole.row_N], how) for k, whole in enumerate(paper.levels))


def _level(k: int, whole: Level, prompt_N: IntArray, how: Normalisation) -> Consistency:
    """The consistency of level k; `prompt_N` and all arrays but those of the result are in its group order."""
    runs = whole.runs()
    by_prompt_N = np.lexsort((prompt_N, runs.run_N))  # keeps the groups where they are and sorts inside each
    starts_N = changes(runs.run_N) | changes(prompt_N[by_prompt_N])
    row_N, parts = whole.row_N[by_prompt_N], Runs.from_starts(starts_N)
    compared = GroupedValues(whole.compared.value_N[by_prompt_N], whole.compared.summed_N[by_prompt_N])
    statistics = group_statistics(compared, parts, how.ddof)

    prompts_G, size_G = np.bincount(runs.run_N, weights=starts_N), runs.size_G
    differs_N = (prompts_G > 1)[runs.run_N]
    explained = None
    if differs_N.any():
        values = compared.value_N[differs_N], whole.batch_trajectory[row_N][differs_N]
        group_P = np.cumsum(changes(runs.run_N[differs_N])) - 1
        explained = variance_explained(*values, group_P, Runs.from_starts(starts_N[differs_N]))[1]

    whole_N, split_N = whole.advantage_N[by_prompt_N], normalised(statistics, parts, how)
    alone_N = (statistics.count_G == 1.0)[parts.run_N]
    product_N = (whole_N * split_N)[differs_N]
    counts = ConsistencyCounts(
        k=k,
        groups=int(np.count_nonzero(size_G > 1)),
        differ=int(np.count_nonzero(prompts_G > 1)),
        grouped_steps=int(size_G[size_G > 1].sum()),
        steps=int(np.count_nonzero(differs_N)),
        alone=int(np.count_nonzero(differs_N & alone_N)),
        compared=int(np.count_nonzero(product_N)),
        flipped=int(np.count_nonzero(product_N < 0)),
        change=float(np.abs(whole_N - split_N)[differs_N & ~alone_N].sum()),
        explained=explained,
    )
    return Consistency(counts, *(to_rows(column_N, row_N) for column_N in (differs_N, whole_N, split_N)))
