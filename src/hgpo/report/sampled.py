"""The sampled steps of a report as columns: whole tasks, each a contiguous range of steps.

Shapes: N steps of the update, S sampled steps, M sampled trajectories, V nodes of the transition graph. Arrays of S
values are in the order task, trajectory, step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Level
from hgpo.estimators.transition_graph import transition_graph
from hgpo.report.analysis import AnalysedUpdate
from hgpo.steps import StepBatch

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class LevelColumns:
    """One level of one estimator for the sampled steps; see `hgpo.estimators.base.Level`.

    Attributes:
        k: steps of history that the level compares; None for the episode level.
        name: what the level compares.
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

    def at(self, at_S: IntArray) -> LevelColumns:
        """The level for some of the steps, whole tasks."""
        columns = _at(self.columns, at_S)
        matches = self.matches
        if matches:
            matches = _at(matches, np.flatnonzero(np.isin(matches["source"], columns["group"])))
        return replace(self, columns=columns, matches=matches)


@dataclass(frozen=True, slots=True, eq=False)
class SampledSteps:
    """The sampled steps of an update, in the order task, trajectory, step, so that each task is one range.

    Attributes:
        update: number of the update.
        task_ids, trajectory_ids, task_types: one per sampled task or trajectory.
        success_M: per trajectory, 1 if it won, 0 if it did not, 2 if it is unknown.
        columns: [S] each: task, trajectory (indices into the ids), step, reward, penalty, return, and source, target
            (nodes of the task's transition graph; a task's nodes are numbered from 0).
        texts: observation, state (its key, if one was applied), prompt, response, action, fault: S values each, None
            where there is none.
        node_observation: per task, the observation of each node; None for the end of the trajectories that won, False
            for the end of the others.
        advantages: [S] of each estimator, by its key.
        levels: of each estimator, by its key; the episode level first, if it has one.
        consistency: per level of HGPO, [S] each: differs, whole, split (`hgpo.report.analysis.Consistency`).
    """

    update: int
    task_ids: tuple[str, ...]
    trajectory_ids: tuple[str, ...]
    task_types: tuple[str, ...]
    success_M: NDArray[np.int8]
    columns: Columns
    texts: Mapping[str, tuple[str | None, ...]]
    node_observation: tuple[tuple[str | bool | None, ...], ...]
    advantages: Mapping[str, FloatArray]
    levels: Mapping[str, tuple[LevelColumns, ...]]
    consistency: tuple[Columns, ...]

    def __len__(self) -> int:
        """Return the number of sampled steps S."""
        return len(self.columns["step"])

    def with_tasks(self, tasks: Sequence[int]) -> SampledSteps:
        """A copy with only these tasks, renumbered from 0; `tasks` are ascending indices into `task_ids`."""
        at_S = np.flatnonzero(np.isin(self.columns["task"], tasks))
        kept = _at(self.columns, at_S)
        trajectory_M, trajectory_S = np.unique(kept["trajectory"], return_inverse=True)
        return replace(
            self,
            task_ids=tuple(self.task_ids[task] for task in tasks),
            task_types=tuple(self.task_types[task] for task in tasks),
            node_observation=tuple(self.node_observation[task] for task in tasks),
            trajectory_ids=tuple(self.trajectory_ids[number] for number in trajectory_M),
            success_M=self.success_M[trajectory_M],
            columns={
                **kept,
                "task": np.searchsorted(tasks, kept["task"]),
                "trajectory": trajectory_S.reshape(-1),
            },
            texts={name: tuple(column[at] for at in at_S) for name, column in self.texts.items()},
            advantages=_at(self.advantages, at_S),
            levels={key: tuple(level.at(at_S) for level in levels) for key, levels in self.levels.items()},
            consistency=tuple(_at(level, at_S) for level in self.consistency),
        )


def _at(columns: Columns, at_S: IntArray) -> dict[str, NDArray[Any]]:
    return {name: column[at_S] for name, column in columns.items()}


def sample_steps(update: AnalysedUpdate, tasks: Sequence[int]) -> SampledSteps:
    """The report's columns for the steps of the given tasks (values of `batch.group`)."""
    batch = update.batch
    row_S = _rows(batch, tasks)
    task_of = np.zeros(int(batch.group.max()) + 1, dtype=np.int64)
    task_of[np.asarray(tasks)] = np.arange(len(tasks))
    trajectory_M, trajectory_S = np.unique(batch.trajectory[row_S], return_inverse=True)
    won_M = np.zeros(len(batch.trajectory_group), np.bool_) if update.won_M is None else update.won_M
    graph = transition_graph(replace(batch, success=won_M[batch.trajectory]))
    nodes = [
        _task_nodes(batch, graph.observation_V, graph.goal_V, np.flatnonzero(graph.task_V == task)) for task in tasks
    ]
    number_V = np.zeros(len(graph), dtype=np.int64)
    for _, node_V, local_V in nodes:
        number_V[node_V] = local_V
    first_row = row_S[[int(np.argmax(batch.group[row_S] == task)) for task in tasks]]
    return SampledSteps(
        update=update.steps.update,
        task_ids=tuple(_text(batch.labels["group"][task]) or "" for task in tasks),
        trajectory_ids=tuple(_text(batch.labels["trajectory"][number]) or "" for number in trajectory_M),
        task_types=tuple(_text(value) or "" for value in update.steps.values("task_type", first_row)),
        success_M=np.where(update.won_M is None, 2, won_M).astype(np.int8)[trajectory_M],
        columns={
            "task": task_of[batch.group[row_S]],
            "trajectory": trajectory_S.reshape(-1),
            "step": batch.step[row_S],
            "reward": batch.reward[row_S],
            "penalty": batch.penalty[row_S],
            "return": next(iter(update.advantages.values())).returns[row_S],
            "source": number_V[graph.source_N[row_S]],
            "target": number_V[graph.target_N[row_S]],
        },
        texts=_texts(update, row_S),
        node_observation=tuple(names for names, _, _ in nodes),
        advantages={key: computed.values[row_S] for key, computed in update.advantages.items()},
        levels={
            key: tuple(_level(level, row_S) for level in computed.terms) for key, computed in update.advantages.items()
        },
        consistency=tuple(
            _at({"differs": level.differs_N, "whole": level.whole_N, "split": level.split_N}, row_S)
            for level in update.consistency
        ),
    )


def _rows(batch: StepBatch, tasks: Sequence[int]) -> IntArray:
    """Rows of whole tasks in the order of `tasks`, in each by trajectory and time."""
    rank_G = np.full(int(batch.group.max()) + 1, -1)
    rank_G[np.asarray(tasks)] = np.arange(len(tasks))
    in_time_N = batch.order[rank_G[batch.group[batch.order]] >= 0]
    rows: IntArray = in_time_N[np.argsort(rank_G[batch.group[in_time_N]], kind="stable")]
    return rows


def _level(level: Level, row_S: IntArray) -> LevelColumns:
    group_S = level.group[row_S]
    numbers, dense_S = np.unique(group_S, return_inverse=True)
    columns = {name: getattr(level, name)[row_S] for name in ("mean", "std", "advantage", "weight", "unused")}
    columns["group"] = dense_S.reshape(-1) - int(numbers[0] == -1)
    if (found := level.matches) is None:
        return LevelColumns(level.k, level.name, columns)
    numbers = numbers[numbers >= 0]
    kept_E = np.flatnonzero((found.source_E != found.target_E) & np.isin(found.source_E, numbers))
    matches = {
        "source": np.searchsorted(numbers, found.source_E[kept_E]),
        "target": np.searchsorted(numbers, found.target_E[kept_E]),
        "similarity": found.similarity_E[kept_E],
    }
    return LevelColumns(level.k, level.name, columns, matches, found.own_trajectory)


def _task_nodes(
    batch: StepBatch, observation_V: IntArray, goal_V: NDArray[np.bool_], node_V: IntArray
) -> tuple[tuple[str | bool | None, ...], IntArray, IntArray]:
    """A task's nodes with all won ends as one and all other ends as one: their names, and each node's number."""
    seen_V = observation_V[node_V]
    merged_V = np.where(seen_V >= 0, seen_V, np.where(goal_V[node_V], -1, -2))
    distinct, local_V = np.unique(-merged_V, return_inverse=True)  # negated: the ends come last
    names = [
        _text(batch.labels["observation"][-value]) if value <= 0 else (None if value == 1 else False)
        for value in distinct
    ]
    return tuple(names), node_V, local_V.reshape(-1)


def _texts(update: AnalysedUpdate, row_S: IntArray) -> dict[str, tuple[str | None, ...]]:
    batch, texts = update.batch, {}
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
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    return text.encode("utf-8", "replace").decode()
