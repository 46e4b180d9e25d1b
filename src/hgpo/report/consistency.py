"""How often steps grouped as "same state" had different prompts, and what that did to their advantages.

For every level k of HGPO the group of a step is split by prompt. A_k is the step's advantage in the whole group, A_k'
the one in its part of it, both with the paper's arithmetic (`step_level`, ddof 0). Where no other member had the same
prompt, A_k' is 0 and the step is called *alone*.

Shapes: N steps, P steps in groups of one level, G groups. Arrays suffixed _N are in the batch's row order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.estimators.base import Level, to_rows
from hgpo.estimators.diagnostics import TaskSpread, variance_explained
from hgpo.estimators.levels import Normalisation, step_level
from hgpo.grouping import GroupedValues, Runs, StepGroups, changes, group_steps
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class ConsistencyFigures:
    """One level of one update in counts, so that updates can be added up.

    Attributes:
        k: the level.
        groups: groups of two or more members.
        differ: those of `groups` whose prompts are not all equal.
        grouped_steps: steps in `groups`.
        steps: steps in `differ`. The rest is about these steps.
        alone: no other member had the same prompt.
        compared: steps whose A_k and A_k' are both not 0.
        flipped: those of `compared` whose signs differ.
        change: sum of |A_k - A_k'| over `steps` less `alone`, in the advantage's units.
        explained: share of the variance of returns within groups that is between prompts, adjusted for the number of
            prompts (see `variance_explained`); None without such groups or variance.

    Example: a group of returns 0, 0, 1, 1 whose prompts are a, a, b, b has groups 1, differ 1, steps 4, alone 0, and
    explained 1.0: the prompts tell the returns apart completely.
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
    """Figures of one level, and the columns they come from, [N].

    Attributes:
        figures: see `ConsistencyFigures`.
        differs_N: whether the step's group has different prompts.
        whole_N, split_N: A_k and A_k'.
    """

    figures: ConsistencyFigures
    differs_N: BoolArray
    whole_N: FloatArray
    split_N: FloatArray


def prompt_consistency(
    batch: StepBatch, return_N: FloatArray, history_length: int, mode: str
) -> tuple[Consistency, ...]:
    """Levels 0..history_length; empty where the batch has no prompts.

    Args:
        batch: the steps.
        return_N: their returns in row order.
        mode: one of `MODES`.
    """
    if batch.prompt is None:
        return ()
    groups = group_steps(batch, history_length)
    return tuple(
        _level(k, batch.prompt[groups.row_N], groups, return_N[groups.row_N], mode) for k in range(history_length + 1)
    )


def _level(k: int, prompt_N: IntArray, groups: StepGroups, return_N: FloatArray, mode: str) -> Consistency:
    how = Normalisation(mode, ddof=0)
    whole = step_level(k, groups, GroupedValues(return_N), how)
    runs = whole.runs()
    by_prompt_N = np.lexsort((prompt_N, runs.run_N))  # keeps the groups where they are and sorts inside each
    starts_N = changes(runs.run_N) | changes(prompt_N[by_prompt_N])
    parts = StepGroups(groups.row_N[by_prompt_N], groups.task_starts_N, (starts_N,), (None,))
    split = step_level(0, parts, GroupedValues(return_N[by_prompt_N]), how)

    prompts_G = np.bincount(runs.run_N, weights=starts_N).astype(np.int64)
    differs_N = (prompts_G > 1)[runs.run_N]
    explained = _explained(return_N[by_prompt_N], runs.run_N, Runs.from_starts(starts_N), differs_N)
    row_N = groups.row_N
    return Consistency(
        _figures(k, runs, prompts_G, to_rows(differs_N, row_N), whole, split, explained),
        to_rows(differs_N, row_N),
        whole.advantage,
        split.advantage,
    )


def _figures(
    k: int, runs: Runs, prompts_G: IntArray, differs_N: BoolArray, whole: Level, split: Level, explained: float | None
) -> ConsistencyFigures:
    whole_N, split_N, comparable_N = whole.advantage, split.advantage, split.used
    size_G = runs.size_G
    product_N = (whole_N * split_N)[differs_N]
    change_N = np.abs(whole_N - split_N)[differs_N & comparable_N]
    return ConsistencyFigures(
        k=k,
        groups=int(np.count_nonzero(size_G > 1)),
        differ=int(np.count_nonzero(prompts_G > 1)),
        grouped_steps=int(size_G[size_G > 1].sum()),
        steps=int(np.count_nonzero(differs_N)),
        alone=int(np.count_nonzero(differs_N & ~comparable_N)),
        compared=int(np.count_nonzero(product_N)),
        flipped=int(np.count_nonzero(product_N < 0)),
        change=float(change_N.sum()),
        explained=explained,
    )


def _explained(return_N: FloatArray, group_N: IntArray, parts: Runs, differs_N: BoolArray) -> float | None:
    """Adjusted share of between-prompt variance in the returns of groups with different prompts."""
    if not differs_N.any():
        return None
    starts_N = np.zeros(len(return_N), dtype=np.bool_)
    starts_N[parts.start_G] = True
    return_P, runs = return_N[differs_N], Runs.from_starts(starts_N[differs_N])
    group_P = np.cumsum(changes(group_N[differs_N])) - 1
    return variance_explained(return_P, group_P, runs, TaskSpread.of(return_P, group_P))[1]
