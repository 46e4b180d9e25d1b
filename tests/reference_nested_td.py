"""NestedTD as plain loops over its definition and one dense linear system, to compare the vectorised code with."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from reference import Columns, context, rows_of

END, UNKNOWN = "end", "unknown"


def nested_td(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    rows = range(len(columns["step"]))
    depth = options["history_length"]
    # Of each step: its group at level 0, 1, ..., K, the coarsest first.
    groups = [
        [("level", k, context(columns, row, k, "observation_action", "truncate")) for k in range(depth + 1)]
        for row in rows
    ]
    leads_to = [destination(columns, row, groups, options) for row in rows]
    correction = [action_correction(columns, row, groups, options["action_power"]) for row in rows]
    scale = [max(abs(r) for r, g in zip(columns["reward"], columns["group"], strict=True) if g == own) or 1.0
             for own in columns["group"]]  # fmt: skip
    target = [discounted(columns, row, gamma) for row in rows]
    for _ in range(2):
        priors = [
            options["shrinkage"] * variance_ratio([t / s for t, s in zip(target, scale, strict=True)], groups, k)
            for k in range(1, depth + 1)
        ]
        value = values(columns, groups, leads_to, correction, gamma, priors) | {END: 0.0, UNKNOWN: 0.0}
        target = [columns["reward"][row] + gamma * value[leads_to[row]] for row in rows]
    result = []
    for row in rows:
        difference = target[row] - value[groups[row][-1]]
        alike = [other for other in rows if groups[other][0] == groups[row][0]]
        task = [abs(columns["reward"][other]) for other in rows if columns["group"][other] == columns["group"][row]]
        bound = max(1e-4 * max(abs(target[other]) for other in alike), 1e-5 * (max(task) or 1.0))
        if abs(difference) <= bound:
            difference = 0.0
        penalty = columns["penalty"][row] - math.fsum(columns["penalty"][other] for other in alike) / len(alike)
        difference = difference * correction[row] * (leads_to[row] != UNKNOWN) - penalty
        difference = 0.0 if abs(difference) < 1e-12 else difference
        result.append(math.copysign(abs(difference) ** options["difference_power"], difference))
    if options["mode"] == "batch_std":
        result = [number / (float(np.std(result)) + 1e-6) for number in result]
    return result


def destination(columns: Columns, row: int, groups: list[list[Any]], options: dict[str, Any]) -> Hashable:
    """The finest group of the next step, the state where a time limit cut the trajectory, or an end."""
    path = rows_of(columns, columns["trajectory"][row])
    if columns["step"][row] + 1 < len(path):
        return groups[path[columns["step"][row] + 1]][-1]
    won = any(columns["success"][other] for other in path)  # a won episode is not continued
    if not (options["bootstrap_truncated"] and columns["truncated"][row] and not won):
        return END
    shown = (columns["group"][row], columns["next_observation"][row])
    there = [other for other in range(len(groups)) if (columns["group"][other], columns["observation"][other]) == shown]
    return groups[there[0]][0] if there else UNKNOWN


def action_correction(columns: Columns, row: int, groups: list[list[Any]], power: float) -> float:
    alike = [other for other in range(len(groups)) if groups[other][0] == groups[row][0]]
    weights, coverage = {}, 0.0
    for action in {columns["action"][other] for other in alike}:
        taken = [math.exp(columns["response_log_prob"][other]) for other in alike if columns["action"][other] == action]
        chosen = math.fsum(taken) / len(taken)
        coverage += chosen
        weights[action] = chosen / (1 - (1 - chosen) ** len(alike))
    if coverage < 0.5:
        return 1.0
    share = weights[columns["action"][row]] / math.fsum(weights.values())
    frequency = sum(columns["action"][other] == columns["action"][row] for other in alike) / len(alike)
    return float((share / frequency) ** power)


def values(
    columns: Columns,
    groups: list[list[Any]],
    leads_to: list[Hashable],
    weight: list[float],
    gamma: float,
    priors: list[float],
) -> dict[Hashable, float]:
    """Of the groups of all levels, from their equations as one linear system."""
    names = sorted({name for of_step in groups for name in of_step}, key=str)
    place = {name: number for number, name in enumerate(names)}
    matrix, right = np.eye(len(names)), np.zeros(len(names))
    for name in names:
        k, here = name[1], place[name]
        members = [row for row in range(len(groups)) if groups[row][k] == name]
        share = 1.0
        if k:
            trajectories = len({columns["trajectory"][row] for row in members})
            share = trajectories / (trajectories + priors[k - 1])
            matrix[here, place[groups[members[0]][k - 1]]] -= 1 - share
        total = math.fsum(weight[row] for row in members)
        for row in members:
            right[here] += share * weight[row] / total * columns["reward"][row]
            if leads_to[row] not in (END, UNKNOWN):
                matrix[here, place[leads_to[row]]] -= share * weight[row] / total * gamma
    return dict(zip(names, np.linalg.solve(matrix, right).tolist(), strict=True))


def discounted(columns: Columns, row: int, gamma: float) -> float:
    path = rows_of(columns, columns["trajectory"][row])[columns["step"][row] :]
    return math.fsum(gamma**t * columns["reward"][other] for t, other in enumerate(path))


def variance_ratio(target: list[float], groups: list[list[Any]], k: int) -> float:
    """Within the groups of level k over between those with one parent, by the method of moments."""
    rows = range(len(target))

    def members(row: int, level: int) -> list[int]:
        return [other for other in rows if groups[other][level] == groups[row][level]]

    def mean(row: int, level: int) -> float:
        return math.fsum(target[other] for other in members(row, level)) / len(members(row, level))

    sizes = [(len(members(row, k)), len(members(row, k - 1))) for row in rows]
    freedom = math.fsum(1 - 1 / fine for fine, _ in sizes)
    divisor = math.fsum(1 - fine / coarse for fine, coarse in sizes)
    if freedom < 0.5 or divisor < 0.5:
        return 64.0
    within = math.fsum((target[row] - mean(row, k)) ** 2 for row in rows) / freedom
    across = math.fsum((mean(row, k) - mean(row, k - 1)) ** 2 for row in rows)
    between = (across - within * math.fsum(1 / fine - 1 / coarse for fine, coarse in sizes)) / divisor
    return min(within / between, 64.0) if between > 0 else 64.0
