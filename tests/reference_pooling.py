"""Pooled weights and mixed effects as plain loops over their definitions, to compare the vectorised code with."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from reference import TOLERANCE, Columns, context, returns, unsigned

PRIOR = 8.0


def pooled(columns: Columns, gamma: float, options: dict[str, Any]) -> tuple[list[float], list[list[float]]]:
    """Values, and per level the weight of each row."""
    value = returns(columns, gamma)
    rows = range(len(value))
    depth = 0 if options["context"] == "prompt" else options["history_length"]
    # Moments need every group, so levels that "drop" does not count are grouped as if they were cut short.
    early = "truncate" if options["early"] == "drop" else options["early"]
    keys = [[context(columns, row, k, options["context"], early) for row in rows] for k in range(depth + 1)]
    summed = returns(unsigned(columns), gamma)
    deviations = [[deviation(value, summed, members(level, row), row) for row in rows] for level in keys]
    left_out = options["baseline"] == "leave_one_out"
    own = 1 if left_out else 0

    values, weights = [], [[0.0 for _ in rows] for _ in range(depth + 1)]
    for row in rows:
        rest = 1.0
        for k in range(depth, 0, -1):
            within, between = components(columns, row, keys[k - 1], keys[k], deviations[k - 1], deviations[k], left_out)
            counted = len(members(keys[k], row)) - own
            share = shrink(counted, between, within)
            if options["early"] == "drop" and columns["step"][row] < k:
                share = 0.0
            weights[k][row] = rest * share
            rest *= 1.0 - share
        weights[0][row] = rest
        total = 0.0
        for k in range(depth + 1):
            count = len(members(keys[k], row))
            factor = (count / (count - 1) if count > 1 else 0.0) if left_out else 1.0
            total += weights[k][row] * deviations[k][row] * factor
        values.append(total * scale(deviations[0], members(keys[0], row), options))
    return values, weights


def mixed_effects(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    value = returns(columns, gamma)
    rows = range(len(value))
    levels = range(options["history_length"] + 1)
    early = "truncate" if options["early"] == "drop" else options["early"]
    keys = [[context(columns, row, k, options["context"], early) for row in rows] for k in levels]
    cells: list[list[Hashable]] = [[(keys[k][row], columns["action"][row]) for row in rows] for k in levels]
    summed = returns(unsigned(columns), gamma)
    y = [deviation(value, summed, members(keys[0], row), row) for row in rows]
    largest = max(abs(v) for v in y)

    def around(level: list[Hashable]) -> list[float]:
        raw = [y[row] - mean(y, members(level, row)) for row in rows]
        return [0.0 if abs(d) <= TOLERANCE * largest else d for d in raw]

    in_cell = [around(level) for level in cells]
    depth = sum(any(len(members(level, row)) > 1 for row in rows) for level in cells[1:])
    total = [0.0 for _ in rows]
    if depth > 0:
        in_context = around(keys[depth])
        variances = [
            [components(columns, row, cells[k - 1], cells[k], in_cell[k - 1], in_cell[k], False) for row in rows]
            for k in range(1, depth + 1)
        ]
        action_variance = [
            components(columns, row, keys[depth], cells[depth], in_context, in_cell[depth], False)[1] for row in rows
        ]
        effects = [[0.0 for _ in rows] for _ in range(depth)]
        for _ in range(3):
            left = [y[row] - math.fsum(effect[row] for effect in effects) for row in rows]
            action = [
                shrink(len(members(cells[0], row)), action_variance[row], variances[-1][row][0])
                * mean(left, members(cells[0], row))
                for row in rows
            ]
            for k in range(1, depth + 1):
                others = [effect for at, effect in enumerate(effects) if at != k - 1]
                left = [y[row] - action[row] - math.fsum(effect[row] for effect in others) for row in rows]
                effects[k - 1] = [
                    shrink(len(members(keys[k], row)), variances[k - 1][row][1], variances[-1][row][0])
                    * mean(left, members(keys[k], row))
                    if options["early"] != "drop" or columns["step"][row] >= k
                    else 0.0
                    for row in rows
                ]
        total = [math.fsum(effect[row] for effect in effects) for row in rows]
    return [(y[row] - total[row]) * scale(y, members(keys[0], row), {**options, "ddof": 0}) for row in rows]


def components(
    columns: Columns,
    row: int,
    parent: list[Hashable],
    child: list[Hashable],
    parent_deviation: list[float],
    child_deviation: list[float],
    left_out: bool,
) -> tuple[float, float]:
    """sigma^2 and tau^2 for the task and state of a row."""
    everyone = range(len(child))
    others = [at for at in everyone if not left_out or columns["group"][at] != columns["group"][row]]
    alike = [at for at in others if columns["observation"][at] == columns["observation"][row]]

    def moments(rows: list[int]) -> tuple[float, float, float, float, float]:
        n = {at: len(members(child, at)) for at in rows}
        m = {at: len(members(parent, at)) for at in rows}
        return (
            math.fsum(child_deviation[at] ** 2 for at in rows),
            math.fsum(1 - 1 / n[at] for at in rows),
            math.fsum((parent_deviation[at] - child_deviation[at]) ** 2 for at in rows),
            math.fsum(1 / n[at] - 1 / m[at] for at in rows),
            math.fsum(1 - n[at] / m[at] for at in rows),
        )

    inside, freedom, across, across_freedom, divisor = moments(others)
    if freedom < 0.5:
        return 0.0, 0.0
    within = inside / freedom
    between = rest(across, across_freedom * within) / divisor if divisor > 0.5 else 0.0
    inside, freedom, across, across_freedom, divisor = moments(alike)
    within = (inside + PRIOR * within) / (freedom + PRIOR)
    between = rest(across + PRIOR * between, across_freedom * within) / (divisor + PRIOR)
    return within, between


def rest(whole: float, part: float) -> float:
    """What is left of the whole, and nothing where that is rounding."""
    return whole - part if whole - part > 1e-9 * whole else 0.0


def members(level: list[Hashable], row: int) -> list[int]:
    return [at for at, key in enumerate(level) if key == level[row]]


def mean(values: list[float], rows: list[int]) -> float:
    return math.fsum(values[at] for at in rows) / len(rows)


def deviation(values: list[float], summed: list[float], rows: list[int], row: int) -> float:
    difference = values[row] - mean(values, rows)
    return 0.0 if abs(difference) <= TOLERANCE * max(summed[at] for at in rows) else difference


def shrink(count: float, between: float, within: float) -> float:
    total = count * between + within
    return count * between / total if total > 0 else 0.0


def scale(deviations: list[float], rows: list[int], options: dict[str, Any]) -> float:
    if options["mode"] == "mean_norm":
        return 1.0
    count = len(rows) - options["ddof"]
    std = math.sqrt(math.fsum(deviations[at] ** 2 for at in rows) / count) if count > 0 else 0.0
    return 1.0 / (std + options.get("epsilon", 1e-6))
