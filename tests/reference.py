"""The estimators written as plain loops over their definitions, to compare the vectorised code with.

Slow and literal on purpose: groups are lists of rows, contexts are tuples of observations, means are `math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

Columns = dict[str, list[Any]]
TOLERANCE = 1e-12


@dataclass
class ReferenceLevel:
    members: list[frozenset[int] | None]
    advantage: list[float]
    weight: list[float]
    used: list[bool]


def rows_of(columns: Columns, trajectory: Hashable) -> list[int]:
    rows = [row for row, name in enumerate(columns["trajectory"]) if name == trajectory]
    return sorted(rows, key=lambda row: columns["step"][row])


def returns(columns: Columns, gamma: float) -> list[float]:
    result = []
    for row in range(len(columns["step"])):
        later = rows_of(columns, columns["trajectory"][row])[columns["step"][row] :]
        discounted = math.fsum(gamma**distance * columns["reward"][at] for distance, at in enumerate(later))
        result.append(discounted - columns["penalty"][row])
    return result


def scores(columns: Columns) -> list[float]:
    result = []
    for row in range(len(columns["step"])):
        whole = rows_of(columns, columns["trajectory"][row])
        result.append(math.fsum(columns["reward"][at] for at in whole) - columns["penalty"][row])
    return result


def unsigned(columns: Columns) -> Columns:
    """The same steps with nothing that cancels: their returns and scores say how much was summed."""
    return columns | {
        "reward": [abs(value) for value in columns["reward"]],
        "penalty": [-abs(value) for value in columns["penalty"]],
    }


def context(columns: Columns, row: int, k: int, kind: str, early: str) -> Hashable | None:
    """What must be equal at level k, or None if the step has no group there."""
    task = columns["group"][row]
    if kind == "prompt":
        return (task, columns["prompt"][row])
    path = rows_of(columns, columns["trajectory"][row])[: columns["step"][row] + 1]
    if early == "drop" and len(path) <= k:
        return None
    recent = path[-(k + 1) :]
    seen: list[Hashable] = [columns["observation"][at] for at in recent]
    done: list[Hashable] = [columns["action"][at] for at in recent[:-1]]
    if early == "pad":
        missing = k + 1 - len(seen)
        seen = [seen[0]] * missing + seen
        done = ["(nothing)"] * missing + done
    return (task, tuple(seen), tuple(done) if kind == "observation_action" else None)


def mean_and_std(
    values: list[float], shares: list[float], ddof: int, summed: list[float] | None = None
) -> tuple[float, float]:
    count = round(math.fsum(shares))
    mean = math.fsum(v * s for v, s in zip(values, shares, strict=True)) / count
    tolerance = TOLERANCE * max(abs(v) for v in summed or values)
    squares = [s * (v - mean) ** 2 for v, s in zip(values, shares, strict=True) if abs(v - mean) > tolerance]
    return mean, math.sqrt(math.fsum(squares) / (count - ddof)) if count > ddof else 0.0


def advantage(
    value: float,
    others: list[int],
    values: list[float],
    shares: list[float],
    summed: list[float],
    mode: str,
    ddof: int,
    epsilon: float,
) -> float:
    """`others` are those, among `values`, whose mean is subtracted."""
    _, std = mean_and_std(values, shares, ddof, summed)
    total = math.fsum(shares[at] for at in others)
    deviation = value - math.fsum(values[at] * shares[at] for at in others) / total
    if abs(deviation) <= TOLERANCE * max(summed):
        return 0.0
    return deviation / (std + epsilon) if mode == "mean_std_norm" else deviation


def episode(columns: Columns, mode: str, count: str, baseline: str = "mean") -> ReferenceLevel:
    score, summed = scores(columns), scores(unsigned(columns))
    level = ReferenceLevel([], [], [], [])
    for row, task in enumerate(columns["group"]):
        members = [at for at, other in enumerate(columns["group"]) if other == task]
        own = columns["trajectory"][row]
        alone = all(columns["trajectory"][at] == own for at in members)
        compared = [place for place, at in enumerate(members) if baseline == "mean" or columns["trajectory"][at] != own]
        lengths = [len(rows_of(columns, columns["trajectory"][at])) for at in members]
        shares = [1.0 if count == "step" else 1.0 / length for length in lengths]
        values, sums = [score[at] for at in members], [summed[at] for at in members]
        level.members.append(frozenset(members))
        level.advantage.append(0.0 if alone else advantage(score[row], compared, values, shares, sums, mode, 1, 1e-6))
        level.used.append(not alone)
    return level


def step_level(columns: Columns, k: int, gamma: float, options: dict[str, Any]) -> ReferenceLevel:
    values, summed = returns(columns, gamma), returns(unsigned(columns), gamma)
    count = len(values)
    keys = [context(columns, row, k, options["context"], options["early"]) for row in range(count)]
    level = ReferenceLevel([], [], [], [])
    for row in range(count):
        members = [at for at in range(count) if keys[row] is not None and keys[at] == keys[row]]
        level.members.append(frozenset(members) if members else None)
        level.used.append(len(members) > 1)
        compared = [place for place, at in enumerate(members) if options["baseline"] == "mean" or at != row]
        level.advantage.append(
            advantage(
                values[row],
                compared,
                [values[at] for at in members],
                [1.0] * len(members),
                [summed[at] for at in members],
                options["mode"],
                options["ddof"],
                options.get("epsilon", 1e-6),
            )
            if len(members) > 1
            else 0.0
        )
    return level


def hgpo(columns: Columns, gamma: float, options: dict[str, Any]) -> tuple[list[float], list[ReferenceLevel]]:
    """Values and items; the episode item, if asked for, is the first."""
    depth = 0 if options["context"] == "prompt" else options["history_length"]
    items = [step_level(columns, k, gamma, options) for k in range(depth + 1)]
    lengths = [k + options["length_offset"] for k in range(depth + 1)]
    if options["base_group"]:
        items.insert(0, episode(columns, options["mode"], "step", options["baseline"]))
        lengths.insert(0, 1)
    strength = [length ** options["length_weight_alpha"] for length in lengths]
    values = []
    for row in range(len(columns["step"])):
        if options["missing"] == "drop_zero":
            for item in items:
                item.used[row] = item.used[row] and item.advantage[row] != 0.0
        counts = [options["missing"] == "zero" or item.used[row] for item in items]
        total = math.fsum(s for s, counted in zip(strength, counts, strict=True) if counted)
        total += 1e-6 if options["missing"] == "drop_zero" else 0.0
        for item, s, counted in zip(items, strength, counts, strict=True):
            item.weight.append(s / total if counted else 0.0)
        values.append(math.fsum(item.weight[row] * item.advantage[row] for item in items))
    return values, items


def gigpo(columns: Columns, gamma: float, mode: str, step_advantage_w: float) -> list[float]:
    options = {"context": "observation", "early": "truncate", "mode": mode, "baseline": "mean", "ddof": 1}
    step = step_level(columns, 0, gamma, options)
    whole = episode(columns, mode, "step")
    return [a + step_advantage_w * b for a, b in zip(whole.advantage, step.advantage, strict=True)]


def grpo(columns: Columns, mode: str, count: str) -> list[float]:
    return episode(columns, mode, count).advantage


def rloo(columns: Columns) -> list[float]:
    return episode(columns, "mean_norm", "trajectory", "leave_one_out").advantage


ESTIMATORS: dict[str, Callable[..., Any]] = {"hgpo": hgpo, "gigpo": gigpo, "grpo": grpo, "rloo": rloo}
