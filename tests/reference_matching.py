"""Soft groups as loops over all pairs of steps, to compare the code over pairs of groups with."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

import reference
from reference import Columns, context

Weights = list[list[float]]
Texts = dict[str, np.ndarray]


def state_vectors(columns: Columns, texts: Texts | None) -> dict[Hashable, np.ndarray]:
    """Of each (task, observation): the mean of its steps' embeddings, or the vector of its text."""
    if texts is None and "embedding" not in columns:
        return {}
    found: dict[Hashable, list[Any]] = {}
    for row, state in enumerate(zip(columns["group"], columns["observation"], strict=True)):
        found.setdefault(state, []).append(texts[state[1]] if texts is not None else columns["embedding"][row])
    return {state: np.mean(np.array(vectors, dtype=np.float64), axis=0) for state, vectors in found.items()}


def kappa(one: Hashable, other: Hashable, vectors: dict[Hashable, np.ndarray], threshold: float, kernel: str) -> float:
    if one == other or threshold == 1:
        return float(one == other)
    similarity = 1 - float(np.sum((vectors[one] - vectors[other]) ** 2)) / 2
    if similarity < threshold - 1e-9:
        return 0.0
    return 1.0 if kernel == "uniform" else max(1 - (1 - similarity) / (1 - threshold), 0.0)


def level_weights(columns: Columns, options: dict[str, Any], texts: Texts | None = None) -> list[Weights]:
    """w_k(i, j) of every level and pair of rows; a step without a context of that length has weight 0 for all."""
    vectors, rows = state_vectors(columns, texts), range(len(columns["step"]))
    kind, early = options.get("context", "observation"), options.get("early", "truncate")
    found = []
    for k in range(options["history_length"] + 1):
        contexts = [context(columns, row, k, kind, early) for row in rows]
        found.append([[_weight(columns, i, j, contexts[i], contexts[j], vectors, options) for j in rows] for i in rows])
    return found


def _weight(
    columns: Columns, i: int, j: int, one: Any, other: Any, vectors: dict[Hashable, np.ndarray], options: dict[str, Any]
) -> float:
    if one is None or other is None or one[0] != other[0] or len(one[1]) != len(other[1]) or one[2] != other[2]:
        return 0.0
    own = columns["trajectory"][i] == columns["trajectory"][j] and one != other
    if own and not options.get("match_own_trajectory", True):
        return 0.0
    how = vectors, options.get("match_threshold", 1), options.get("match_kernel", "uniform")
    return math.prod(kappa((one[0], a), (one[0], b), *how) for a, b in zip(one[1], other[1], strict=True))


def step_levels(
    columns: Columns, gamma: float, options: dict[str, Any], texts: Texts | None = None
) -> list[list[tuple[float, int]]]:
    """(A_k, number of steps compared) of every step at every level; (0, 0) without a context."""
    values = reference.returns(columns, gamma)
    return [
        [_advantage(row, weights[row], values, options) for row in range(len(values))]
        for weights in level_weights(columns, options, texts)
    ]


def _advantage(row: int, weight: list[float], values: list[float], options: dict[str, Any]) -> tuple[float, int]:
    size = sum(w > 1e-9 for w in weight)
    if size < 2:
        return 0.0, size
    total = math.fsum(weight)
    mean = math.fsum(w * v for w, v in zip(weight, values, strict=True)) / total
    square = math.fsum(w * (v - mean) ** 2 for w, v in zip(weight, values, strict=True))
    degrees = total - options["ddof"] * math.fsum(w * w for w in weight) / total
    std = math.sqrt(square / degrees) if degrees > 1e-12 else 0.0
    baseline = mean
    if options.get("baseline", "mean") == "leave_one_out":
        baseline = math.fsum(w * v for at, (w, v) in enumerate(zip(weight, values, strict=True)) if at != row) / (
            total - 1
        )
    deviation = values[row] - baseline
    deviation = 0.0 if abs(deviation) <= 1e-11 else deviation
    return deviation / (std + options["epsilon"]) if options["mode"] == "mean_std_norm" else deviation, size
