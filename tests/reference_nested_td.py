"""NestedTD as plain loops over its definition, to compare the vectorised code with."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from reference import Columns, context, rows_of
from reference_matching import level_weights

END, UNKNOWN = "end", "unknown"


def nested_td(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    """Sums are over all steps whose context matches: equal contexts without an option `match_threshold`."""
    rows, depth = range(len(columns["step"])), options["history_length"]
    weights = [np.array(w) for w in level_weights(columns, options | {"context": "observation_action"})]
    groups = [
        [("level", k, context(columns, row, k, "observation_action", "truncate")) for k in range(depth + 1)]
        for row in rows
    ]
    leads_to = [destination(columns, row, groups, options) for row in rows]
    correction = np.array([action_correction(columns, row, groups, options["action_power"]) for row in rows])
    scale = np.array([max(abs(r) for r, g in zip(columns["reward"], columns["group"], strict=True) if g == own) or 1.0
                      for own in columns["group"]])  # fmt: skip
    reward = np.array(columns["reward"]) / scale
    names = np.array(columns["trajectory"], dtype=object)
    acting = [np.array([len({str(names[j]) for j in rows if w[i, j] > 1e-9}) for i in rows]) for w in weights]
    target = np.array([discounted(columns, row, gamma) for row in rows]) / scale
    first = {name: row for row in reversed(rows) for name in groups[row]}
    for _ in range(2):
        shares = [
            acting[k] / (acting[k] + options["shrinkage"] * variance_ratio(target, weights[k - 1], weights[k]))
            for k in range(1, depth + 1)
        ]
        value, coarse = np.zeros(len(rows)), np.zeros(len(rows))
        for _ in range(3_000):
            reached = [(value if to[1] == depth else coarse)[first[to]] if to in first else 0.0 for to in leads_to]
            following = np.array(reached)
            target = reward + gamma * following
            means = [w @ (correction * target) / (w @ correction) for w in weights]
            new = means[0]
            for share, mean in zip(shares, means[1:], strict=True):
                new = share * mean + (1 - share) * new
            change = np.abs(new - value).max()
            value, coarse = new, means[0]
            if change < 1e-9:
                break
    difference = target - value
    for row in rows:
        alike = [other for other in rows if groups[other][0] == groups[row][0]]
        if abs(difference[row]) <= max(1e-4 * max(abs(target[other]) for other in alike), 1e-5):
            difference[row] = 0.0
    known = np.array([to != UNKNOWN for to in leads_to])
    penalty = np.array(columns["penalty"])
    difference = difference * scale * correction * known - (penalty - weights[0] @ penalty / weights[0].sum(axis=1))
    power = options["difference_power"]
    result = [math.copysign(abs(d) ** power, d) if abs(d) > 1e-12 else 0.0 for d in difference]
    divisor = float(np.std(result)) + 1e-6 if options["mode"] == "batch_std" else 1.0
    return [number / divisor for number in result]


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


def discounted(columns: Columns, row: int, gamma: float) -> float:
    path = rows_of(columns, columns["trajectory"][row])[columns["step"][row] :]
    return math.fsum(gamma**t * columns["reward"][other] for t, other in enumerate(path))


def variance_ratio(target: np.ndarray, coarse: np.ndarray, fine: np.ndarray) -> float:
    count, parent = fine.sum(axis=1), coarse.sum(axis=1)
    deviation = [target - weight @ target / weight.sum(axis=1) for weight in (coarse, fine)]
    freedom, divisor = float(np.sum(1 - 1 / count)), float(np.sum(1 - count / parent))
    if freedom < 0.5 or divisor < 0.5:
        return 64.0
    within = float(np.sum(deviation[1] ** 2)) / freedom
    across = float(np.sum((deviation[0] - deviation[1]) ** 2))
    between = (across - within * float(np.sum(1 / count - 1 / parent))) / divisor
    return min(within / between, 64.0) if between > 0 else 64.0
