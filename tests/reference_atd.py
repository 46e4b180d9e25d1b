"""ATD as plain loops over its definition, to compare the vectorised code with."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Any

from reference import Columns, context, returns, rows_of


def atd(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    rows = range(len(columns["step"]))
    value = returns(columns | {"penalty": [0.0 for _ in rows]}, gamma)
    depth = options["history_length"]
    seen = [(columns["group"][row], columns["observation"][row]) for row in rows]
    # The context's task is part of the key; "truncate" says what a step with too short a past has.
    past = [context(columns, row, depth, "observation_action", "truncate") for row in rows]

    def mean(numbers: list[float], keys: list[Any], key: Hashable) -> float:
        return average(numbers[row] for row in rows if keys[row] == key)

    lambdas = {name: trust(columns, value, seen, past, name, options) for name in set(columns["observation"])}
    result = []
    for row in rows:
        rest = rows_of(columns, columns["trajectory"][row])[columns["step"][row] :]
        target = columns["reward"][rest[-1]]
        for here, following in reversed(list(pairwise(rest))):
            share = lambdas[columns["observation"][following]]
            bootstrap = mean(value, seen, seen[following])
            target = columns["reward"][here] + gamma * ((1 - share) * bootstrap + share * target)
        penalty = columns["penalty"][row] - mean(columns["penalty"], seen, seen[row])
        result.append(target - mean(value, seen, seen[row]) - penalty)
    if options["mode"] == "batch_std":
        middle = average(result)
        result = [a / (math.sqrt(average((b - middle) ** 2 for b in result)) + 1e-6) for a in result]
    return result


def trust(
    columns: Columns, value: list[float], seen: list[Any], past: list[Any], name: Hashable, options: dict[str, Any]
) -> float:
    """Lambda of one observation."""
    rows = [row for row in range(len(value)) if columns["observation"][row] == name]
    members0 = {row: [other for other in rows if seen[other] == seen[row]] for row in rows}
    members1 = {row: [other for other in rows if past[other] == past[row]] for row in rows}
    m0 = {row: average(value[other] for other in members0[row]) for row in rows}
    m1 = {row: average(value[other] for other in members1[row]) for row in rows}
    n0 = {row: len(members0[row]) for row in rows}
    n1 = {row: len(members1[row]) for row in rows}
    within = (math.fsum((value[row] - m1[row]) ** 2 for row in rows) + 1e-12) / (
        math.fsum(1 - 1 / n1[row] for row in rows) + 1e-6
    )
    divisor = math.fsum(1 - n1[row] / n0[row] for row in rows)
    excess = math.fsum((m1[row] - m0[row]) ** 2 for row in rows) - within * math.fsum(
        1 / n1[row] - 1 / n0[row] for row in rows
    )
    between = 0.0 if divisor < 0.5 else max(0.0, excess) / max(divisor, 1e-6)
    share = between / (between + within + 1e-12)
    return float(options["lambda_min"] + (1 - options["lambda_min"]) * min(1.0, options["trust"] * share))


def average(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return math.fsum(listed) / len(listed)
