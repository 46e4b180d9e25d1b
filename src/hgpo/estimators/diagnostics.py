"""Diagnostics of step groups: sizes, return variance explained, prompts, and one summary per level.

Shapes: N steps, P steps with a group at the level (in group order), V visits, G groups, J tasks, I levels or
trajectories. docs/inspect.md explains each figure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Advantages, Level, Unused, to_rows
from hgpo.estimators.matches import other_trajectories
from hgpo.grouping import GroupedValues, Runs, changes, group_statistics, visits_of
from hgpo.steps import StepBatch


def variance_explained(
    return_P: FloatArray,
    trajectory_P: IntArray,
    task_P: IntArray,
    groups: Runs,
    compared: tuple[IntArray, IntArray, FloatArray] | None = None,
) -> tuple[float | None, float | None]:
    """Share of the return variance that groups explain, raw (1 - W / T) and adjusted (1 - W / E[W]).

    `LevelSummary` defines T, W and E[W]; a share is None if its divisor is 0. A trajectory counts once per group, with
    the mean of its returns there: its steps in a group share the trajectory's outcome and are not independent.

    Args:
        return_P: returns in group order: the members of a group are neighbours, and the groups of a task.
        trajectory_P: number of each step's trajectory.
        task_P: number of each step's task; a group lies inside one task.
        groups: the groups as runs of these steps.
        compared: at a level with matches, what each group is compared with, see `Matches.visits`: a deviation is then
            from the mean of these n trajectories, and E[W] adds S_j^2 (1 - 1 / n) for each.

    Example: four trajectories with returns 0, 1 | 2, 3 in two groups of one task: T = 5, W = 1, and E[W] = 2 * 5 / 3
    (two groups of two; the variance between trajectories is 5 / 3), so (0.8, 0.7).
    """
    order_P, visits = visits_of(groups.run_N, trajectory_P)
    value_V, first_V = _means(return_P, order_P, visits), order_P[visits.start_G]
    values, task_V = GroupedValues(value_V), task_P[first_V]
    group_runs = Runs.from_starts(changes(groups.run_N[first_V]))
    deviation_V = group_statistics(values, Runs.from_starts(changes(task_V)), ddof=0).deviation_N
    total = float(np.sum(deviation_V * deviation_V))
    if compared is None:
        deviation_in_group_V = group_statistics(values, group_runs, ddof=0).deviation_N
        others_J = np.bincount(task_V) - np.bincount(task_V[group_runs.start_G], minlength=int(task_V.max()) + 1)
    else:
        count_V, mean_V = other_trajectories(groups.run_N[first_V], trajectory_P[first_V], compared)
        deviation_in_group_V = (value_V - mean_V) * count_V / (count_V + 1.0)
        others_J = np.bincount(task_V, weights=count_V / (count_V + 1.0))
    within = float(np.sum(deviation_in_group_V * deviation_in_group_V))
    expected = float(np.sum(others_J * _variance_between(deviation_V, trajectory_P[first_V], task_V)))
    return (
        max(1.0 - within / total, 0.0) if total > 0.0 else None,
        1.0 - within / expected if expected > 0.0 else None,
    )


def _means(value_P: FloatArray, order_P: IntArray, runs: Runs) -> FloatArray:
    """Mean of the values in each run of the entries in an order, float64[V]."""
    sum_V = np.bincount(runs.run_N, weights=value_P[order_P]).astype(np.float64, copy=False)
    return sum_V / runs.size_G


def _variance_between(value_V: FloatArray, trajectory_V: IntArray, task_V: IntArray) -> FloatArray:
    """Half the mean squared difference between values of two trajectories of a task, float64[J]; 0 for one trajectory.

        S^2 = mean_i E[x_i^2] - sum_{i != j} E[x_i] E[x_j] / (n (n - 1))

    E is the mean over the values x_i of trajectory i, n the number of trajectories. If every trajectory has one value,
    S^2 is the unbiased variance.
    """
    order_V, trajectories = visits_of(task_V, trajectory_V)
    task_I = task_V[order_V[trajectories.start_G]]
    mean_I, square_I = (_means(part_V, order_V, trajectories) for part_V in (value_V, value_V * value_V))
    count_J = np.bincount(task_I)
    sum_J, square_J, own_J = (np.bincount(task_I, weights=part_I) for part_I in (mean_I, square_I, mean_I * mean_I))
    pairs_J = np.maximum(count_J * (count_J - 1), 1)
    variance_J = square_J / np.maximum(count_J, 1) - (sum_J * sum_J - own_J) / pairs_J
    return np.where(count_J > 1, variance_J, 0.0)


def prompts_differ(prompt_P: IntArray, groups: Runs) -> float | None:
    """Share of the steps in groups with unequal prompts, among the steps in groups of two or more; None: no such group.

    Example: prompts 0, 0 | 0, 1, 1 | 2: three of the five steps in the first two groups, so 3 / 5.
    """
    size_G = groups.size_G
    shared_G = size_G > 1
    if not shared_G.any():
        return None
    other_P = prompt_P != prompt_P[groups.start_G][groups.run_N]
    differ_G = np.bincount(groups.run_N, weights=other_P) > 0.0
    return float(np.sum(size_G * differ_G)) / float(np.sum(size_G * shared_G))


def size_percentiles(size_P: IntArray, percents: tuple[int, ...]) -> list[int]:
    """For each percentage p, the smallest s such that at least p % of the steps are in groups of at most s members.

    Example: steps in groups of 1, 1 and four times 4 members: two of six are in groups of one, so 10 % gives 1 and
    50 % gives 4.
    """
    size_P = np.sort(size_P)
    return [int(size_P[-(-len(size_P) * percent // 100) - 1]) for percent in percents]


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """Statistics of one level of groups. Shares are 0 to 1; None if there is nothing to count.

    Attributes:
        k: number of the level, None for the episode level.
        name: what the members of a group have in common, see `Level`.
        usable_share: share of steps for which the level is used. It adds up to 1 with the next four shares, the
            reasons in `Unused`.
        no_context_share: share of steps without a group at the level.
        alone_share: share of steps alone in their group.
        dropped_share: share of steps left out because their advantage is 0.
        only_trajectory_share: share of steps whose trajectory is the only one of its task.
        mean_weight: mean over all steps of the weight of the level where it is used, 0 elsewhere.
        sign_agreement: among the steps where this level and the one before it (for level 0: the episode level, where
            there is one) are used and neither advantage is 0, the share where both have the same sign.
        sign_agreement_final: the same with the final advantage.
        groups: number of groups.
        singleton_share: share of the groups that have one member.
        mean_size: members of the group, mean over all steps (a group of five counts five times, a step without a group
            counts 0).
        mean_trajectories: different trajectories of the group, mean over all steps.
        similar_share: share of the members whose context is similar and not equal; 0 where groups are equal contexts.
        size_p10: the size that 10 % of the steps with a group do not exceed.
        size_p50: the size that 50 % of them do not exceed.
        size_p90: the size that 90 % of them do not exceed.
        size_max: the largest size.
        variance_explained: raw share, 1 - W / T. A trajectory has one value in a group, the mean of its returns there.
            T: sum of squared deviations of these values from the mean of their task; W: from the mean of their group.
            It is 1 if every group has one trajectory.
        variance_explained_adjusted: 1 - W / E[W], where E[W] = sum over tasks of S_j^2 (v_j - g_j): v_j values in g_j
            groups, and S_j^2 half the mean squared difference between values of two trajectories. 0: trajectories of
            a group are as alike as any of the task; below 0: less alike; 1: equal values in every group. If each
            trajectory has one return, E[W] is the mean of W over all permutations of the task's returns.
        prompts_differ_steps: share of the steps whose group has unequal prompts, among the steps in groups of two or
            more members.
    """

    k: int | None
    name: str
    usable_share: float
    no_context_share: float
    alone_share: float
    dropped_share: float
    only_trajectory_share: float
    mean_weight: float
    sign_agreement: float | None = None
    sign_agreement_final: float | None = None
    groups: int = 0
    singleton_share: float | None = None
    mean_size: float = 0.0
    mean_trajectories: float = 0.0
    similar_share: float = 0.0
    size_p10: int | None = None
    size_p50: int | None = None
    size_p90: int | None = None
    size_max: int | None = None
    variance_explained: float | None = None
    variance_explained_adjusted: float | None = None
    prompts_differ_steps: float | None = None

    @property
    def label(self) -> str:
        """The level's name in columns, keys and charts: "episode", or the number of the level."""
        return "episode" if self.k is None else str(self.k)


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """Statistics of a batch's advantages.

    Attributes:
        steps: number of steps.
        trajectories: number of trajectories.
        tasks: number of tasks.
        unequal_starts: number of tasks whose trajectories have different observations at step 0.
        advantage_mean: mean of the final advantages.
        advantage_deviation: standard deviation of the final advantages.
        advantage_min: smallest final advantage.
        advantage_max: largest final advantage.
        advantage_zero_share: share of steps whose final advantage is exactly 0.
        levels: one summary per level, `levels[k].k == k`; empty for an estimator without step groups.
        episode: the episode level, where the estimator has one.
    """

    steps: int
    trajectories: int
    tasks: int
    unequal_starts: int
    advantage_mean: float
    advantage_deviation: float
    advantage_min: float
    advantage_max: float
    advantage_zero_share: float
    levels: tuple[LevelSummary, ...]
    episode: LevelSummary | None

    @property
    def terms(self) -> tuple[LevelSummary, ...]:
        """The episode level, if there is one, then the levels; see `Advantages.terms`."""
        return self.levels if self.episode is None else (self.episode, *self.levels)

    def to_dict(self) -> dict[str, Any]:
        """All figures, nested as the fields are, as plain values for JSON."""
        return asdict(self)

    def flat(self) -> dict[str, float]:
        """The figures that are logged at every update (docs/reference/metrics.md), one key each: `group_size_0`, ….

        A figure that is None has no key; the episode level's keys end in `_episode`.
        """
        figures = {
            "advantage_mean": self.advantage_mean,
            "advantage_deviation": self.advantage_deviation,
            "advantage_zero_share": self.advantage_zero_share,
            "unequal_starts": self.unequal_starts / self.tasks,
        }
        for level in self.terms:
            for name, field in _FLAT_NAMES.items():
                if (figure := getattr(level, field)) is not None:
                    figures[f"{name}_{level.label}"] = figure
        return figures


_FLAT_NAMES = {
    "group_size": "mean_size",
    "group_trajectories": "mean_trajectories",
    "group_usable": "usable_share",
    "level_weight": "mean_weight",
    "level_variance_explained": "variance_explained",
    "level_variance_explained_adjusted": "variance_explained_adjusted",
    "level_sign_agreement": "sign_agreement",
    "level_sign_agreement_final": "sign_agreement_final",
    "level_prompts_differ": "prompts_differ_steps",
}


LEVEL_HEADINGS = {
    "usable_share": "usable",
    "no_context_share": "no context",
    "alone_share": "alone",
    "only_trajectory_share": "only one",
    "dropped_share": "dropped",
    "variance_explained": "explained, raw",
    "variance_explained_adjusted": "explained, adjusted",
    "sign_agreement": "sign as previous",
    "sign_agreement_final": "sign as final",
    "groups": "groups",
    "singleton_share": "single",
    "mean_size": "mean size",
    "mean_trajectories": "trajectories",
    "similar_share": "similar",
    "size_p10": "size 10\N{NO-BREAK SPACE}%",
    "size_p50": "size 50\N{NO-BREAK SPACE}%",
    "size_p90": "size 90\N{NO-BREAK SPACE}%",
    "size_max": "largest",
    "prompts_differ_steps": "prompts differ",
    "mean_weight": "mean weight",
}
"""Field of `LevelSummary` -> its heading in the tables of `hgpo advantages`, `hgpo inspect` and its page."""
SHARES = frozenset(
    name for name in LEVEL_HEADINGS if name.startswith(("variance", "sign", "prompts")) or name.endswith("_share")
)
"""Keys of `LEVEL_HEADINGS` whose figures are shown in percent."""


def compared_with(level: Level, row: int) -> tuple[IntArray, FloatArray]:
    """The rows of the batch that a row is compared with at a level, itself included, and their weights.

    Returns:
        int64[M], ascending, and float64[M]: 1 for an equal context, the kernel's weight for a similar one. Empty if the
        step has no group at the level.

    Example: of `compute_advantages(batch, "hgpo")`, `compared_with(advantages.levels[0], 5)[0]` are the steps that
    share the state of row 5.
    """
    compared = level.comparison()
    run_N, matches = compared.groups.run_N, compared.matches
    row = range(len(run_N))[row]  # a negative one counts from the end
    here = int(np.argmax(compared.row_N == row))
    weight_G = np.zeros(len(compared.groups.size_G))
    if matches is None:
        weight_G[run_N[here]] = 1.0
    else:
        pairs_E = matches.source_E == run_N[here]
        weight_G[matches.target_E[pairs_E]] = matches.weight_E[pairs_E]
    weight_N = weight_G[run_N]
    if matches is not None and not matches.own_trajectory:
        weight_N[(compared.trajectory_N == compared.trajectory_N[here]) & (run_N != run_N[here])] = 0.0
    kept = np.flatnonzero((weight_N > 0.0) & (level.group[row] >= 0))
    kept = kept[np.argsort(compared.row_N[kept])]
    return compared.row_N[kept], weight_N[kept]


def starts_note(share: float) -> str:
    """What a share of tasks with unequal starts means; "" if there is none."""
    if not share:
        return ""
    return (
        f"in {100 * share:.3g} % of the tasks, trajectories start in different states, but estimators assume equal "
        "starts: make tasks reproducible, or compare states by another key"
    )


def _unequal_starts(batch: StepBatch) -> int:
    """Number of tasks whose trajectories have different first observations."""
    first_M = batch.observation[batch.order[batch.trajectory_start[:-1]]]
    task_U = np.unique(np.stack([batch.trajectory_group, first_M]), axis=1)[0]
    return int(np.count_nonzero(np.bincount(task_U) > 1))


def summarise_levels(batch: StepBatch, advantages: Advantages) -> BatchSummary:
    """Compute the statistics of a batch and of each of its levels; O(N log N) per level.

    Args:
        batch: the steps.
        advantages: the result of an estimator for these steps.

    Raises:
        ValueError: `advantages` and `batch` have different numbers of steps.

    Example: three trajectories of one task reach the observation "kitchen", two of them from the observation "hall".

    >>> from hgpo import StepBatch, compute_advantages
    >>> batch = StepBatch.from_columns(
    ...     group=["task"] * 6, trajectory=["a", "a", "b", "b", "c", "c"], step=[0, 1, 0, 1, 0, 1],
    ...     observation=["hall", "kitchen", "hall", "kitchen", "garden", "kitchen"], reward=[0, 1, 0, 0, 0, 1])
    >>> summary = summarise_levels(batch, compute_advantages(batch, "hgpo", gamma=1.0, history_length=1))
    >>> [level.groups for level in summary.levels], [level.singleton_share for level in summary.levels]
    ([3, 4], [0.3333333333333333, 0.5])
    >>> [round(level.usable_share, 3) for level in summary.levels]
    [0.833, 0.667]
    """
    if len(batch) != len(advantages.values):
        raise ValueError(
            f"the batch has {len(batch)} steps and the advantages {len(advantages.values)}; "
            "pass the batch that the advantages were computed from"
        )
    values_N = advantages.values
    sign_IN = [to_rows(np.sign(term.advantage_N), term.row_N) for term in advantages.terms]  # 0 where it is unused
    summaries = tuple(
        replace(
            _level_summary(batch, advantages.returns, term),
            sign_agreement=_agreement(sign_N, before_N),
            sign_agreement_final=_agreement(sign_N, np.sign(values_N)),
        )
        for term, sign_N, before_N in zip(advantages.terms, sign_IN, [None, *sign_IN[:-1]], strict=False)
    )
    has_episode = advantages.episode is not None
    return BatchSummary(
        steps=len(batch),
        trajectories=len(batch.trajectory_group),
        tasks=int(batch.group.max()) + 1,
        unequal_starts=_unequal_starts(batch),
        advantage_mean=float(values_N.mean()),
        advantage_deviation=float(values_N.std()),
        advantage_min=float(values_N.min()),
        advantage_max=float(values_N.max()),
        advantage_zero_share=float(np.mean(values_N == 0)),
        levels=summaries[1:] if has_episode else summaries,
        episode=summaries[0] if has_episode else None,
    )


def _level_summary(batch: StepBatch, return_N: FloatArray, level: Level) -> LevelSummary:
    """All figures of one level except the agreement of signs, which needs two levels."""
    unused = np.bincount(level.unused, minlength=len(Unused)) / len(batch)
    summary = LevelSummary(
        k=level.k,
        name=level.name,
        usable_share=float(unused[Unused.NO]),
        no_context_share=float(unused[Unused.NO_CONTEXT]),
        alone_share=float(unused[Unused.ALONE]),
        dropped_share=float(unused[Unused.DROPPED]),
        only_trajectory_share=float(unused[Unused.ONLY_TRAJECTORY]),
        mean_weight=float(np.sum(level.weight_N * level.used_N)) / len(batch),
    )
    row_P, starts_P = level.row_N, level.starts_N
    if level.present_N is not None:
        row_P, starts_P = row_P[level.present_N], starts_P[level.present_N]
    if not len(row_P):
        return summary
    runs = Runs.from_starts(starts_P)
    summary = replace(summary, **_sizes(level, row_P, runs))
    if level.k is None:
        return summary
    compared = None if level.matches is None else _compared(level, batch, return_N)
    values = return_N[row_P], batch.trajectory[row_P], batch.group[row_P]
    explained, adjusted = variance_explained(*values, runs, compared)
    summary = replace(summary, variance_explained=explained, variance_explained_adjusted=adjusted)
    if batch.prompt is None or compared is not None:
        return summary
    return replace(summary, prompts_differ_steps=prompts_differ(batch.prompt[row_P], runs))


def _sizes(level: Level, row_P: IntArray, runs: Runs) -> dict[str, Any]:
    """The figures of the sizes of a level's groups."""
    count, equal_G, size_P = len(level.row_N), runs.size_G, level.size[row_P]
    size_G = size_P[runs.start_G]
    p10, p50, p90, largest = size_percentiles(size_P, (10, 50, 90, 100))
    return {
        "groups": len(size_G),
        "singleton_share": float(np.mean(size_G == 1)),
        "mean_size": float(np.sum(size_P)) / count,
        "mean_trajectories": float(np.sum(level.trajectories[row_P])) / count,
        "similar_share": 1.0 - float(np.sum(equal_G * equal_G)) / float(np.sum(size_P)),
        "size_p10": p10,
        "size_p50": p50,
        "size_p90": p90,
        "size_max": largest,
    }


def _compared(level: Level, batch: StepBatch, return_N: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """`Matches.visits` of a level with matches, with the groups of steps without a context left out."""
    assert level.matches is not None
    runs = level.runs()
    group_W, trajectory_W, mean_W = level.matches.visits(runs, batch.trajectory[level.row_N], return_N[level.row_N])
    if level.present_N is None:
        return group_W, trajectory_W, mean_W
    present_G = level.present_N[runs.start_G]
    kept_W = present_G[group_W]
    return (np.cumsum(present_G) - 1)[group_W[kept_W]], trajectory_W[kept_W], mean_W[kept_W]


def _agreement(sign_N: FloatArray, other_N: FloatArray | None) -> float | None:
    """Share of equal signs among pairs without a 0; None if there is no such pair, or no other level."""
    if other_N is None:
        return None
    product_N = sign_N * other_N
    compared = int(np.count_nonzero(product_N))
    return int(np.count_nonzero(product_N > 0)) / compared if compared else None
