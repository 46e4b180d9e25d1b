"""The data of the report page, packed: one zlib stream of a JSON header and its columns, as base64.

    4 bytes   length of the header, little-endian
    header    JSON, UTF-8; every column is {"type": "u1" | "u2" | "i4" | "f4", "at": first byte, "length": values}
    columns   of each column, the first bytes of its values, then their second bytes, …: similar bytes compress better

Equal columns are stored once. Numbers are 32 bits wide: a page shows four digits.

Shapes: S sampled steps of all tasks, V nodes of a task.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.base import Unused
from hgpo.estimators.diagnostics import LEVEL_HEADINGS, SHARES
from hgpo.messages import encodable
from hgpo.report.charts import overview_charts
from hgpo.report.estimator_comparison import level_estimator, whose_levels
from hgpo.report.report import Report
from hgpo.report.sampled import LevelColumns, SampledTask

Column = dict[str, Any]
SWEEPS = 24
"""Rounds of crossing reduction per drawing; more change little on graphs of some dozens of nodes."""
END_OBSERVED, END_WON, END_LOST = 0, 1, 2
"""Kinds of nodes: an observation, the end of the trajectories that won, the end of those that ended otherwise."""


def packed_report(report: Report) -> str:
    """The report as base64 text."""
    columns, texts = Columns(), TextStore()
    header: dict[str, Any] = {
        "source": report.source,
        "gamma": report.training.gamma,
        "estimators": [
            {"key": e.key, "label": e.label, "name": e.name, "options": _plain(e.options), "trained": e.trained}
            for e in report.estimators
        ],
        "followed": level_estimator(report.estimators).key,
        "levelsOf": whose_levels(report.estimators),
        "notices": [str(notice) for notice in report.notices],
        "count": {
            "steps": report.steps,
            "tasks": report.tasks,
            "sampledSteps": report.sampled_steps,
            "sampledTasks": len(report.samples),
        },
        "unit": report.unit,
        "wonRule": report.won_rule,
        "matching": report.matching,
        "levelFigures": [[heading, name, name in SHARES] for name, heading in LEVEL_HEADINGS.items()],
        "unused": [reason.text for reason in Unused],
        "updates": [asdict(update) for update in report.updates],
        "charts": overview_charts(report),
        "run": report.training.facts,
        "steps": _steps(report.samples, columns, texts),
        "trajectories": _trajectories(report.samples, columns, texts),
        "tasks": _tasks(report.samples, columns, texts),
        "nodes": _nodes(report.samples, columns, texts),
        "advantages": _advantages(report, columns),
        "consistency": _consistency(report.samples, columns),
    }
    start, line = texts.encoded()
    header["lines"] = texts.lines
    header["texts"] = {"start": columns.add(start), "line": columns.add(line)}
    return pack_payload(header, columns)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON values; infinity and NaN, which JSON lacks, become text."""
    return {
        name: str(value) if isinstance(value, float) and not isfinite(value) else value
        for name, value in options.items()
    }


def _joined(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _offset(parts: Iterable[IntArray], counts: Iterable[int]) -> IntArray:
    """Indices that start at 0 in every part, offset to be unique over all; `counts` are the numbers per part."""
    shifts = np.cumsum([0, *counts])
    return _joined(np.where(part < 0, -1, part + shift) for part, shift in zip(parts, shifts, strict=False))


def _steps(samples: Sequence[SampledTask], columns: Columns, texts: TextStore) -> dict[str, Column]:
    trajectory = _offset(
        [part.columns["trajectory"] for part in samples], [len(part.trajectory_ids) for part in samples]
    )
    task = np.repeat(np.arange(len(samples)), [len(part) for part in samples])
    stored = {"task": columns.add(task), "trajectory": columns.add(trajectory)}
    for name in ("step", "reward", "penalty", "return", "source", "target"):
        stored[name] = columns.add(_joined(part.columns[name] for part in samples))
    for name in ("observation", "state", "prompt", "response", "action", "fault"):
        stored[name] = columns.add_texts(
            texts, (t for part in samples for t in part.texts.get(name, (None,) * len(part)))
        )
    return stored


def _trajectories(samples: Sequence[SampledTask], columns: Columns, texts: TextStore) -> dict[str, Column]:
    return {
        "id": columns.add_texts(texts, (name for part in samples for name in part.trajectory_ids)),
        "success": columns.add(_joined(part.success_M for part in samples)),
    }


def _tasks(samples: Sequence[SampledTask], columns: Columns, texts: TextStore) -> dict[str, Column]:
    return {
        "update": columns.add(np.array([part.update for part in samples], dtype=np.int64)),
        "id": columns.add_texts(texts, (part.id for part in samples)),
        "type": columns.add_texts(texts, (part.type for part in samples)),
    }


def _nodes(samples: Sequence[SampledTask], columns: Columns, texts: TextStore) -> dict[str, Column]:
    names = [name for part in samples for name in part.node_observation]
    kinds = [END_WON if name is None else END_LOST if name is False else END_OBSERVED for name in names]
    placed = [_placed(part) for part in samples]
    return {
        "start": columns.add(np.cumsum([0, *(len(part.node_observation) for part in samples)])),
        "text": columns.add_texts(texts, (name if isinstance(name, str) else None for name in names)),
        "kind": columns.add(np.array(kinds, dtype=np.int64)),
        "column": columns.add(_joined(column_V for column_V, _ in placed)),
        "row": columns.add(_joined(row_V for _, row_V in placed)),
    }


def _placed(task: SampledTask) -> tuple[IntArray, FloatArray]:
    """Column and row of each node of the task."""
    source_S, target_S, step_S = (task.columns[name] for name in ("source", "target", "step"))
    ends = [number for number, name in enumerate(task.node_observation) if not isinstance(name, str)]
    return place_nodes(source_S, target_S, source_S[step_S == 0], len(task.node_observation), np.array(ends, np.int64))


def _advantages(report: Report, columns: Columns) -> list[dict[str, Any]]:
    """Per estimator that every sampled update could compute: its advantages, and the columns of its levels."""
    stored = []
    for key in (estimator.key for estimator in report.estimators):
        if not report.samples or not all(key in part.advantages for part in report.samples):
            continue
        levels = [_level(parts, columns) for parts in zip(*(part.levels[key] for part in report.samples), strict=False)]
        advantage = columns.add(_joined(part.advantages[key] for part in report.samples))
        stored.append({"key": key, "advantage": advantage, "levels": levels})
    return stored


def _level(parts: Sequence[LevelColumns], columns: Columns) -> dict[str, Any]:
    stored = {
        name: columns.add(_joined(part.columns[name] for part in parts))
        for name in ("mean", "std", "advantage", "weight", "unused")
    }
    group = [part.columns["group"] for part in parts]
    counts = [int(part.max()) + 1 for part in group]
    stored["group"] = columns.add(_offset(group, counts))
    if parts[0].matches:
        for name in ("source", "target"):
            stored[name] = columns.add(_offset([part.matches[name] for part in parts], counts))
        stored["similarity"] = columns.add(_joined(part.matches["similarity"] for part in parts))
    return {"k": parts[0].k, "name": parts[0].name, "ownTrajectory": parts[0].own_trajectory, **stored}


def _consistency(samples: Sequence[SampledTask], columns: Columns) -> list[dict[str, Any]]:
    if not samples or not all(part.consistency for part in samples):
        return []
    return [
        {"k": k, **{name: columns.add(_joined(part.consistency[k][name] for part in samples)) for name in level}}
        for k, level in enumerate(samples[0].consistency)
    ]


def place_nodes(
    source_S: IntArray, target_S: IntArray, starts: IntArray, nodes: int, last: IntArray
) -> tuple[IntArray, FloatArray]:
    """Where each node of one task is drawn: its column, int64[V], and its position within the column, float64[V].

    The column is the number of steps from the start along the shortest path. Unconnected parts are side by side.

    Args:
        source_S, target_S: the edges, one per step; repeated edges and loops are allowed.
        starts: nodes in which trajectories start.
        nodes: V.
        last: nodes to put in a column after all others.

    Raises:
        ValueError: igraph is not installed.

    Example: hall -> kitchen -> end has columns 0, 1, 2 and positions 0, 0, 0.
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
    row_V, free = np.empty(nodes), 0.0
    # igraph 1.0 reads beyond its arrays if it places a graph of several components.
    for part in graph.connected_components(mode="weak"):
        placed = graph.induced_subgraph(part).layout_sugiyama(
            layers=column_V[part].tolist(), hgap=1, vgap=1, maxiter=SWEEPS
        )
        x_V = np.array([x for x, _ in placed.coords[: len(part)]], dtype=np.float64)
        row_V[part] = x_V - x_V.min() + free
        free = row_V[part].max() + 1.0
    return column_V, row_V


class Columns:
    """Collects the columns of a report and concatenates their bytes; equal columns are stored once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._known: dict[tuple[str, bytes], Column] = {}

    def add(self, values: NDArray[Any]) -> Column:
        """Add a column of integers, booleans or floats; return its header entry. NaN becomes null in the page."""
        stored = _smallest(values)
        planes = stored.reshape(-1, 1).view(np.uint8).T.tobytes()
        kind = f"{stored.dtype.kind}{stored.itemsize}"
        known = self._known.get((kind, planes))
        if known is None:
            known = self._known[kind, planes] = {"type": kind, "at": self._size, "length": len(stored)}
            self._parts.append(planes)
            self._size += len(planes)
        return known

    def add_texts(self, store: TextStore, texts: Iterable[str | None]) -> Column:
        """Add texts to `store`, and a column with their indices there."""
        return self.add(np.array([store.add(text) for text in texts], dtype=np.int64))

    def bytes(self) -> bytes:
        """All columns, one after the other."""
        return b"".join(self._parts)


class TextStore:
    """Numbers texts from 1 by first appearance; 0 is "no text".

    Example: `store = TextStore(); store.add("a\\nb"), store.add(None), store.add("a\\nc")` is (1, 0, 2), with
    `store.lines` a, b, c and `store.encoded()` ([0, 0, 2, 4], [0, 1, 0, 2]).
    """

    def __init__(self) -> None:
        self._text_number: dict[str, int] = {}
        self._line_number: dict[str, int] = {}
        self._line_ids: list[int] = []
        self._ends: list[int] = [0, 0]

    def add(self, text: str | None) -> int:
        """Add a text and return its number."""
        if text is None:
            return 0
        number = self._text_number.get(text)
        if number is None:
            number = self._text_number[text] = len(self._text_number) + 1
            lines = self._line_number
            self._line_ids += [lines.setdefault(line, len(lines)) for line in text.split("\n")]
            self._ends.append(len(self._line_ids))
        return number

    @property
    def lines(self) -> list[str]:
        """The distinct lines, by number."""
        return list(self._line_number)

    def encoded(self) -> tuple[IntArray, IntArray]:
        """(start, line): text n is lines `line[start[n]:start[n + 1]]`, joined by line breaks."""
        return np.array(self._ends, dtype=np.int64), np.array(self._line_ids, dtype=np.int64)


def pack_payload(header: dict[str, Any], columns: Columns) -> str:
    """Header and columns as base64 of a zlib stream; the page's `unpack` (bytes.js) is its inverse."""
    header_text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = encodable(header_text).encode("utf-8")  # a path may not be valid UTF-8
    return base64.b64encode(zlib.compress(struct.pack("<I", len(text)) + text + columns.bytes(), 9)).decode("ascii")


def _smallest(values: NDArray[Any]) -> NDArray[Any]:
    """The values in the narrowest little-endian type that the page can read."""
    if values.dtype.kind == "f":
        return values.astype("<f4")
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if lowest >= 0 and highest < 2**16:
        return values.astype(np.uint8 if highest < 2**8 else "<u2")
    return values.astype("<i4")
