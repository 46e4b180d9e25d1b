"""The sampled tasks of a report, each with its steps as columns.

Shapes: S steps of the task, in the order trajectory, step; M trajectories; V nodes of its transition graph; E pairs of
groups that are compared; N steps of the whole update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Level
from hgpo.estimators.transition_graph import TransitionGraph, transition_graph
from hgpo.grouping import ranges
from hgpo.messages import encodable
from hgpo.report.analysis import AnalysedUpdate

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class LevelColumns:
    """One level of one estimator for the steps of a task; see `hgpo.estimators.base.Level`.

    Attributes:
        k: number of the level; None for the episode level.
        name: what the members of a group have in common.
        columns: [S] each: group (from 0; -1 without a group), mean, std, advantage (before the weight), weight, and
            unused (a value of `Unused`).
        matches: [E] each: source, target (groups that are compared, different ones), and similarity; empty where a step
            is compared with its own group alone.
        own_trajectory: whether a step is compared with its own trajectory's steps in other groups.
    """

    k: int | None
    name: str
    columns: Columns
    matches: Columns = field(default_factory=dict)
    own_trajectory: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class SampledTask:
    """A sampled task of an update, with all of its steps.

    Attributes:
        update: number of the update.
        id, type: of the task; the type is "" if it is unknown.
        trajectory_ids: M ids.
        success_M: per trajectory, 1 if it won, 0 if it did not, 2 if it is unknown.
        columns: [S] each: trajectory (index into the ids), step, reward, penalty, return, and source, target (nodes of
            the task's transition graph, from 0).
        texts: observation, state (its key, if one was applied), prompt, response, action, fault: S values each, None
            where there is none.
        node_observation: the observation of each node; None for the end of the trajectories that won, False for the end
            of the others.
        advantages: [S] of each estimator, by its key.
        levels: of each estimator, by its key; the episode level first, if it has one.
        consistency: per level of HGPO, [S] each: differs, whole, split (`hgpo.report.analysis.Consistency`).
    """

    update: int
    id: str
    type: str
    trajectory_ids: tuple[str, ...]
    success_M: NDArray[np.int8]
    columns: Columns
    texts: Mapping[str, tuple[str | None, ...]]
    node_observation: tuple[str | bool | None, ...]
    advantages: Mapping[str, FloatArray]
    levels: Mapping[str, tuple[LevelColumns, ...]]
    consistency: tuple[Columns, ...]

    def __len__(self) -> int:
        """Return the number of steps S."""
        return len(self.columns["step"])


def sample_tasks(update: AnalysedUpdate, tasks: Sequence[int]) -> list[SampledTask]:
    """The report's data of the given tasks (values of `batch.group`)."""
    batch = update.steps.batch
    won_M = np.zeros(len(batch.trajectory_group), np.bool_) if update.won_M is None else update.won_M
    graph = transition_graph(replace(batch, success=won_M[batch.trajectory]))
    names = ("group", "mean", "std", "advantage", "weight", "unused")
    # once for all tasks: a level computes its columns on every access
    levels: dict[str, list[tuple[Level, Columns]]] = {
        key: [(level, {name: getattr(level, name) for name in names}) for level in computed.terms]
        for key, computed in update.advantages.items()
    }
    rows, nodes = _by_task(batch.group[batch.order]), _by_task(graph.task_V)
    return [_sampled(update, graph, levels, batch.order[rows[task]], nodes[task]) for task in tasks]


def _by_task(task_X: IntArray) -> list[IntArray]:
    """The indices of each task's elements, ascending."""
    return np.split(np.argsort(task_X, kind="stable"), np.cumsum(np.bincount(task_X))[:-1])


def _sampled(
    update: AnalysedUpdate,
    graph: TransitionGraph,
    levels: Mapping[str, list[tuple[Level, Columns]]],
    row_S: IntArray,
    node_V: IntArray,
) -> SampledTask:
    batch = update.steps.batch
    trajectory_M, trajectory_S = np.unique(batch.trajectory[row_S], return_inverse=True)
    unknown_M = np.full(len(trajectory_M), 2, np.int8)
    names, number_V = _nodes(update, graph, node_V)
    [task_type] = update.steps.values("task_type", row_S[:1])
    return SampledTask(
        update=update.steps.update,
        id=_text(batch.labels["group"][batch.group[row_S[0]]]) or "",
        type=_text(task_type) or "",
        trajectory_ids=tuple(_text(batch.labels["trajectory"][number]) or "" for number in trajectory_M),
        success_M=unknown_M if update.won_M is None else update.won_M[trajectory_M].astype(np.int8),
        columns={
            "trajectory": trajectory_S,
            "step": batch.step[row_S],
            "reward": batch.reward[row_S],
            "penalty": batch.penalty[row_S],
            "return": next(iter(update.advantages.values())).returns[row_S],
            "source": number_V[np.searchsorted(node_V, graph.source_N[row_S])],
            "target": number_V[np.searchsorted(node_V, graph.target_N[row_S])],
        },
        texts=_texts(update, row_S),
        node_observation=names,
        advantages={key: computed.values[row_S] for key, computed in update.advantages.items()},
        levels={key: tuple(_level(*level, row_S) for level in found) for key, found in levels.items()},
        consistency=tuple(
            {"differs": level.differs_N[row_S], "whole": level.whole_N[row_S], "split": level.split_N[row_S]}
            for level in update.consistency
        ),
    )


def _level(level: Level, column_N: Columns, row_S: IntArray) -> LevelColumns:
    columns = {name: column[row_S] for name, column in column_N.items()}
    numbers, dense_S = np.unique(columns["group"], return_inverse=True)
    columns["group"] = dense_S - int(numbers[0] == -1)
    if (found := level.matches) is None:
        return LevelColumns(level.k, level.name, columns)
    numbers = numbers[numbers >= 0]
    own_E = ranges(*(np.searchsorted(found.source_E, numbers, side) for side in ("left", "right")))
    kept_E = own_E[found.source_E[own_E] != found.target_E[own_E]]
    matches = {
        "source": np.searchsorted(numbers, found.source_E[kept_E]),
        "target": np.searchsorted(numbers, found.target_E[kept_E]),
        "similarity": found.similarity_E[kept_E],
    }
    return LevelColumns(level.k, level.name, columns, matches, found.own_trajectory)


def _nodes(
    update: AnalysedUpdate, graph: TransitionGraph, node_V: IntArray
) -> tuple[tuple[str | bool | None, ...], IntArray]:
    """A task's nodes with all won ends as one and all other ends as one: their names, and each node's number."""
    seen_V = graph.observation_V[node_V]
    merged_V = np.where(seen_V >= 0, seen_V, np.where(graph.goal_V[node_V], -1, -2))
    distinct, number_V = np.unique(-merged_V, return_inverse=True)  # negated: the ends come last
    labels = update.steps.batch.labels["observation"]
    names = [_text(labels[-value]) if value <= 0 else (None if value == 1 else False) for value in distinct]
    return tuple(names), number_V


def _texts(update: AnalysedUpdate, row_S: IntArray) -> dict[str, tuple[str | None, ...]]:
    batch, texts = update.steps.batch, {}
    if update.steps.observed is not None:
        texts["state"] = tuple(_text(batch.labels["observation"][code]) for code in batch.observation[row_S])
        batch = update.steps.observed
    for name in ("observation", "prompt", "action"):
        column = getattr(batch, name)
        if column is not None:
            texts[name] = tuple(_text(batch.labels[name][code]) for code in column[row_S])
    for name in ("response", "fault"):
        texts[name] = tuple(map(_text, update.steps.values(name, row_S)))
    return texts


def _text(value: Any) -> str | None:
    """Any value as text that can be written as UTF-8."""
    return None if value is None else encodable(str(value))
