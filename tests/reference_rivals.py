"""GAGPO, ECPO and PACE as plain loops over their definitions, to compare the vectorised code with."""

from __future__ import annotations

import math
from typing import Any

from reference import TOLERANCE, Columns, episode, returns, rows_of, unsigned


def gagpo(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    rows = range(len(columns["step"]))
    earned = returns(columns | {"penalty": [0.0 for _ in rows]}, gamma)
    value = [average([earned[at] for at in members(columns, row)]) for row in rows]
    result = []
    for row in rows:
        rest = rows_of(columns, columns["trajectory"][row])[columns["step"][row] :]
        following = [value[at] for at in rest[1:]] + [0.0]
        total = math.fsum(
            (gamma * options["gae_lambda"]) ** distance * (columns["reward"][at] + gamma * after - value[at])
            for distance, (at, after) in enumerate(zip(rest, following, strict=True))
        )
        mean_penalty = average([columns["penalty"][at] for at in members(columns, row)])
        result.append(total - (columns["penalty"][row] - mean_penalty))
    if options["mode"] == "batch_std":
        middle = average(result)
        result = [a / (math.sqrt(average([(b - middle) ** 2 for b in result])) + 1e-6) for a in result]
    return result


def ecpo(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    earned = returns(columns, gamma)
    whole = episode(columns, options["mode"], "step").advantage
    result = []
    for row in range(len(earned)):
        here, same = members(columns, row), takers(columns, row)
        middle, taken = average([earned[at] for at in here]), average([earned[at] for at in same])
        between = math.fsum((average([earned[at] for at in takers(columns, other)]) - middle) ** 2 for other in here)
        within = math.fsum(
            (earned[other] - average([earned[at] for at in takers(columns, other)])) ** 2 for other in here
        )
        share = between / (between + within) if between + within > tiny(columns, gamma, here) ** 2 else 0.0
        shrunken = (len(same) * taken + options["prior"] * middle) / (len(same) + options["prior"])
        weight = options["step_advantage_w"] * math.tanh(len(same) / options["evidence"]) * share
        result.append(whole[row] + weight * (shrunken - middle) / scale(earned, here, options["mode"]))
    return result


def pace(columns: Columns, gamma: float, options: dict[str, Any]) -> list[float]:
    earned = returns(columns, gamma)
    whole = episode(columns, options["mode"], "step").advantage
    result = []
    for row in range(len(earned)):
        here, same = members(columns, row), takers(columns, row)
        effect = average([earned[at] for at in same]) - average([earned[at] for at in here])
        if abs(effect) <= tiny(columns, gamma, here):
            effect = 0.0
        result.append(whole[row] + options["step_advantage_w"] * effect / scale(earned, here, options["mode"]))
    return result


def members(columns: Columns, row: int) -> list[int]:
    """Rows of the task that saw the same."""
    own = (columns["group"][row], columns["observation"][row])
    return [at for at, key in enumerate(zip(columns["group"], columns["observation"], strict=True)) if key == own]


def takers(columns: Columns, row: int) -> list[int]:
    """Those of them that took the same action."""
    return [at for at in members(columns, row) if columns["action"][at] == columns["action"][row]]


def tiny(columns: Columns, gamma: float, rows: list[int]) -> float:
    """Differences up to this are rounding."""
    summed = returns(unsigned(columns), gamma)
    return 10 * TOLERANCE * max(summed[at] for at in rows)


def scale(earned: list[float], rows: list[int], mode: str) -> float:
    if mode == "mean_norm":
        return 1.0
    middle = average([earned[at] for at in rows])
    squares = math.fsum((earned[at] - middle) ** 2 for at in rows)
    return (math.sqrt(squares / (len(rows) - 1)) if len(rows) > 1 else 0.0) + 1e-6


def average(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


ESTIMATORS = {"gagpo": gagpo, "ecpo": ecpo, "pace": pace}
