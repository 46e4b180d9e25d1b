"""The data of a page: a report as one packed header and its columns (see `hgpo.report.payload`).

Shapes: S shown steps of all updates, M trajectories, J tasks, V nodes of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Unused
from hgpo.report.charts import overview_charts
from hgpo.report.estimator_comparison import whose_levels
from hgpo.report.payload import Column, Columns, TextStore, pack
from hgpo.report.report import Report
from hgpo.report.shown import EstimatorColumns, LevelColumns, ShownSteps

SWEEPS = 24
"""Rounds of crossing reduction per drawing; more change little on graphs of some dozens of nodes."""
END_OBSERVED, END_WON, END_LOST = 0, 1, 2
"""Kinds of nodes: an observation, the end of the trajectories that won, the end of those that ended otherwise."""


def packed_report(report: Report) -> str:
    """The report as base64 text."""
    columns, texts = Columns(), TextStore()
    header: dict[str, Any] = {
        "source": report.source,
        "gamma": report.gamma,
        "estimators": [
            {"key": e.key, "label": e.label, "name": e.name, "options": _plain(e.options), "trained": e.trained}
            for e in report.estimators
        ],
        "followed": report.followed.key,
        "levelsOf": whose_levels(report.estimators),
        "notices": [str(notice) for notice in report.notices],
        "count": {
            "steps": report.steps,
            "tasks": report.tasks,
            "shownSteps": report.shown_count,
            "shownTasks": report.shown_tasks,
        },
        "unused": [reason.text for reason in Unused],
        "figures": [asdict(update) for update in report.figures],
        "charts": overview_charts(report),
        "run": report.training.facts.as_header() if report.training and report.training.facts else None,
        "steps": _steps(report.shown, columns, texts),
        "trajectories": _trajectories(report.shown, columns, texts),
        "tasks": _tasks(report.shown, columns, texts),
        "nodes": _nodes(report.shown, columns, texts),
        "advantages": _advantages(report, columns),
        "consistency": _consistency(report.shown, columns),
    }
    start, line = texts.encoded()
    header["lines"] = texts.lines
    header["texts"] = {"start": columns.add(start), "line": columns.add(line)}
    return pack(header, columns)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them; infinity, which it has not, as text."""
    return {
        name: str(value) if isinstance(value, float) and not isfinite(value) else value
        for name, value in options.items()
    }


def _joined(shown: Sequence[ShownSteps], column: Callable[[ShownSteps], Any]) -> Any:
    return np.concatenate([column(part) for part in shown]) if shown else np.zeros(0, dtype=np.int64)


def _counted(shown: Sequence[ShownSteps], column: Callable[[ShownSteps], IntArray], counts: Sequence[int]) -> IntArray:
    """Indices that start at 0 in every update, offset to be unique over all; `counts` are the numbers per update."""
    offsets = np.cumsum([0, *counts])
    parts = [
        np.where(column(part) < 0, -1, column(part) + offset) for part, offset in zip(shown, offsets, strict=False)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _steps(shown: Sequence[ShownSteps], columns: Columns, texts: TextStore) -> dict[str, Column]:
    stored = {
        "task": columns.add(_counted(shown, lambda part: part.task_S, [len(part.task_ids) for part in shown])),
        "trajectory": columns.add(
            _counted(shown, lambda part: part.trajectory_S, [len(part.trajectory_ids) for part in shown])
        ),
        "step": columns.add(_joined(shown, lambda part: part.step_S)),
        "reward": columns.add(_joined(shown, lambda part: part.reward_S)),
        "penalty": columns.add(_joined(shown, lambda part: part.penalty_S)),
        "return": columns.add(_joined(shown, lambda part: part.return_S)),
        "source": columns.add(_joined(shown, lambda part: part.source_S)),
        "target": columns.add(_joined(shown, lambda part: part.target_S)),
    }
    for name in ("observation", "prompt", "response", "action", "fault"):
        numbers = [texts.add(text) for part in shown for text in part.texts.get(name, (None,) * len(part))]
        stored[name] = columns.add(np.array(numbers, dtype=np.int64))
    return stored


def _trajectories(shown: Sequence[ShownSteps], columns: Columns, texts: TextStore) -> dict[str, Column]:
    names = [texts.add(name) for part in shown for name in part.trajectory_ids]
    return {
        "id": columns.add(np.array(names, dtype=np.int64)),
        "success": columns.add(_joined(shown, lambda part: part.success_M)),
    }


def _tasks(shown: Sequence[ShownSteps], columns: Columns, texts: TextStore) -> dict[str, Column]:
    update = [part.update for part in shown for _ in part.task_ids]
    return {
        "update": columns.add(np.array(update, dtype=np.int64)),
        "id": columns.add(np.array([texts.add(name) for part in shown for name in part.task_ids], dtype=np.int64)),
        "type": columns.add(np.array([texts.add(name) for part in shown for name in part.task_types], dtype=np.int64)),
    }


def _nodes(shown: Sequence[ShownSteps], columns: Columns, texts: TextStore) -> dict[str, Column]:
    counts, labels, kinds, column, row = [], [], [], [], []
    for part in shown:
        for task, names in enumerate(part.node_observation):
            at_S = np.flatnonzero(part.task_S == task)
            kind = [END_WON if name is None else END_LOST if name is False else END_OBSERVED for name in names]
            places = place_nodes(
                part.source_S[at_S],
                part.target_S[at_S],
                part.source_S[at_S[part.step_S[at_S] == 0]],
                len(names),
                np.flatnonzero(np.array(kind) != END_OBSERVED),
            )
            counts.append(len(names))
            labels += [texts.add(name) if isinstance(name, str) else 0 for name in names]
            kinds += kind
            column.append(places.column_V)
            row.append(places.row_V)
    return {
        "start": columns.add(np.cumsum([0, *counts])),
        "text": columns.add(np.array(labels, dtype=np.int64)),
        "kind": columns.add(np.array(kinds, dtype=np.int64)),
        "column": columns.add(np.concatenate(column) if column else np.zeros(0, dtype=np.int64)),
        "row": columns.add(np.concatenate(row) if row else np.zeros(0)),
    }


def _advantages(report: Report, columns: Columns) -> list[dict[str, Any]]:
    """Per estimator that every shown update could compute: its advantages, and the columns of its levels."""
    stored = []
    for estimator in report.estimators:
        parts = [next((e for e in part.estimators if e.key == estimator.key), None) for part in report.shown]
        present = [part for part in parts if part is not None]
        if not present or len(present) < len(parts):
            continue
        levels = [_level([part.levels[place] for part in present], columns) for place in range(_depth(present))]
        advantage = columns.add(np.concatenate([part.advantage_S for part in present]))
        stored.append({"key": estimator.key, "advantage": advantage, "levels": levels})
    return stored


def _depth(parts: Sequence[EstimatorColumns]) -> int:
    return min(len(part.levels) for part in parts)


def _level(parts: Sequence[LevelColumns], columns: Columns) -> dict[str, Any]:
    counts = np.cumsum([0, *(int(part.group_S.max()) + 1 for part in parts)])
    group = [np.where(part.group_S < 0, -1, part.group_S + offset) for part, offset in zip(parts, counts, strict=False)]
    named = {"mean": "mean_S", "std": "std_S", "advantage": "advantage_S", "weight": "weight_S", "unused": "unused_S"}
    joined = {
        name: columns.add(np.concatenate([getattr(part, field) for part in parts])) for name, field in named.items()
    }
    return {"k": parts[0].k, "name": parts[0].name, "group": columns.add(np.concatenate(group)), **joined}


def _consistency(shown: Sequence[ShownSteps], columns: Columns) -> list[dict[str, Any]]:
    if not shown or not all(part.consistency for part in shown):
        return []
    names = ("differs", "whole", "split")
    return [
        {
            "k": k,
            **{
                name: columns.add(np.concatenate([part.consistency[k][place] for part in shown]))
                for place, name in enumerate(names)
            },
        }
        for k in range(len(shown[0].consistency))
    ]


@dataclass(frozen=True, slots=True, eq=False)
class NodePlaces:
    """Where each node of one task is drawn.

    Attributes:
        column_V: int64[V], steps from the start along the shortest path.
        row_V: float64[V], position within the column.

    Example: hall -> kitchen -> end has columns 0, 1, 2 and rows 0, 0, 0.
    """

    column_V: IntArray
    row_V: FloatArray


def place_nodes(source_S: IntArray, target_S: IntArray, starts: IntArray, nodes: int, last: IntArray) -> NodePlaces:
    """Lay out one task.

    Args:
        source_S, target_S: the edges, one per step; repeated edges and loops are allowed.
        starts: nodes in which trajectories start.
        nodes: V.
        last: nodes to put in a column after all others.

    Raises:
        ValueError: igraph is not installed.
    """
    try:
        import igraph
    except ModuleNotFoundError as error:
        raise ValueError('the report places graphs with igraph: pip install "hgpo[report]"') from error

    edges = np.unique(np.stack([source_S, target_S], axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = igraph.Graph(n=nodes, edges=edges.tolist(), directed=True)
    distance = np.array(graph.distances(source=np.unique(starts).tolist(), mode="out"), dtype=np.float64)
    nearest_V = distance.min(axis=0)
    nearest_V[~np.isfinite(nearest_V)] = 0.0  # unreachable nodes are placed in column 0
    column_V = nearest_V.astype(np.int64)
    others_V = np.ones(nodes, dtype=np.bool_)
    others_V[last] = False
    if len(last) and others_V.any():
        column_V[last] = int(column_V[others_V].max()) + 1
    placed = graph.layout_sugiyama(layers=column_V.tolist(), hgap=1, vgap=1, maxiter=SWEEPS)
    row_V = np.array([x for x, _ in placed.coords[:nodes]], dtype=np.float64)
    return NodePlaces(column_V, row_V - row_V.min())
