"""The graph estimators and similarity grouping as plain loops over their definitions, to compare the library with.

Slow and literal on purpose: a node is a tuple, an edge a pair of nodes, distances come from relaxing every edge until
nothing changes. Columns may hold `success` and `next_observation` besides those of `batches.columns`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from difflib import SequenceMatcher
from typing import Any

from reference import Columns, advantage, episode, returns, rows_of, unsigned

Node = tuple[Hashable, ...]
Edges = list[tuple[Node, Node]]
UNREACHABLE = -1


def won(columns: Columns, trajectory: Hashable) -> bool:
    rows = rows_of(columns, trajectory)
    if "success" in columns:
        return any(columns["success"][row] for row in rows)
    return total(columns, trajectory) > 0


def total(columns: Columns, trajectory: Hashable) -> float:
    return math.fsum(columns["reward"][row] for row in rows_of(columns, trajectory))


def here(columns: Columns, row: int) -> Node:
    return ("observation", columns["group"][row], columns["observation"][row])


def leads_to(columns: Columns, row: int, ends: str) -> Node:
    """The node a step leads to; the end of a trajectory is ("end", task, trajectory, won)."""
    task, trajectory = columns["group"][row], columns["trajectory"][row]
    rows = rows_of(columns, trajectory)
    shown = columns["next_observation"][row] if "next_observation" in columns else None
    if row == rows[-1]:
        if ends == "observed" and shown is not None and not won(columns, trajectory):
            return ("observation", task, shown)
        return ("end", task, trajectory, won(columns, trajectory))
    if shown is None:
        shown = columns["observation"][rows[columns["step"][row] + 1]]
    return ("observation", task, shown)


def edges(columns: Columns, ends: str) -> Edges:
    return [(here(columns, row), leads_to(columns, row, ends)) for row in range(len(columns["step"]))]


def distances(columns: Columns, ends: str) -> dict[Node, int]:
    """Steps from each node to the nearest end that won, UNREACHABLE where there is none."""
    steps = edges(columns, ends)
    distance = {node: math.inf for edge in steps for node in edge}
    distance |= {node: 0 for node in distance if node[0] == "end" and node[3]}
    changed = True
    while changed:
        changed = False
        for source, target in steps:
            if distance[target] + 1 < distance[source]:
                distance[source] = distance[target] + 1
                changed = True
    return {node: UNREACHABLE if steps == math.inf else int(steps) for node, steps in distance.items()}


def graph_returns(columns: Columns, options: dict[str, Any]) -> list[float]:
    distance = distances(columns, "observed")
    result = []
    for source, target in edges(columns, "observed"):
        farthest = max(steps for node, steps in distance.items() if node[1] == source[1])
        beyond = max(farthest, 0) + 1
        exponent = beyond if distance[target] == UNREACHABLE else distance[target]
        if options["normalize_distance"]:
            exponent += 1 - (beyond if distance[source] == UNREACHABLE else distance[source])
        value = options["success_reward"] * options["distance_gamma"] ** exponent
        result.append(0.0 if options["unreachable"] == "zero" and distance[target] == UNREACHABLE else value)
    return result


def normalised(values: list[float], summed: list[float], keys: list[Hashable], mode: str) -> list[float]:
    """Each value within those with its key, unbiased std; 0 where it is alone."""
    result = []
    for value, key in zip(values, keys, strict=True):
        rows = [row for row, same in enumerate(keys) if same == key]
        members, sums = [values[row] for row in rows], [summed[row] for row in rows]
        everyone, shares = list(range(len(rows))), [1.0] * len(rows)
        alone = len(rows) == 1
        result.append(0.0 if alone else advantage(value, everyone, members, shares, sums, mode, 1, 1e-6))
    return result


def graphgpo(columns: Columns, options: dict[str, Any]) -> list[float]:
    gains = graph_returns(columns, options)
    values = [r - penalty for r, penalty in zip(gains, columns["penalty"], strict=True)]
    summed = [r + abs(penalty) for r, penalty in zip(gains, columns["penalty"], strict=True)]
    step = normalised(values, summed, [here(columns, row) for row in range(len(values))], options["mode"])
    whole = episode(columns, options["mode"], "step").advantage
    weights = options["episode_advantage_w"], options["step_advantage_w"]
    return [weights[0] * a + weights[1] * b for a, b in zip(whole, step, strict=True)]


def node_values(columns: Columns, gamma: float, ends: str = "own") -> dict[Node, float]:
    """Mean of gamma^(T - t) R over the visits of each node; an arrival nobody goes on from is a visit at t + 1."""
    visits: dict[Node, list[float]] = {}
    for trajectory in dict.fromkeys(columns["trajectory"]):
        rows = rows_of(columns, trajectory)
        score = total(columns, trajectory)
        for t, row in enumerate(rows):
            visits.setdefault(here(columns, row), []).append(gamma ** (len(rows) - t) * score)
            arrived = leads_to(columns, row, ends)
            if row == rows[-1] or arrived != here(columns, rows[t + 1]):
                visits.setdefault(arrived, []).append(gamma ** (len(rows) - t - 1) * score)
    return {node: math.fsum(values) / len(values) for node, values in visits.items()}


def g2po(columns: Columns, gamma: float, mode: str, step_advantage_w: float) -> tuple[list[float], ...]:
    """The advantage, and its terms of the episode, the node and the edge."""
    value = node_values(columns, gamma)
    next_value, gain, node_sums, edge_sums = [], [], [], []
    whole_sum = {name: total(unsigned(columns), name) for name in columns["trajectory"]}
    for row, (source, target) in enumerate(edges(columns, "own")):
        next_value.append(value[target] - columns["penalty"][row])
        task = columns["group"][row]
        largest = max(
            whole_sum[name]
            for name, other in zip(columns["trajectory"], columns["group"], strict=True)
            if other == task
        )
        node_sums.append(largest + abs(columns["penalty"][row]))
        edge_sums.append(largest)
        difference = value[target] - value[source]
        gain.append(difference if abs(difference) > 1e-12 * largest else 0.0)
    whole = episode(columns, mode, "step").advantage
    node = normalised(next_value, node_sums, [here(columns, row) for row in range(len(gain))], mode)
    edge = normalised(gain, edge_sums, list(columns["group"]), mode)
    joint = [a + step_advantage_w * (b + c) for a, b, c in zip(whole, node, edge, strict=True)]
    return joint, whole, node, edge


def similar_observations(columns: Columns, threshold: float) -> list[str]:
    """The text that stands for each step's observation."""
    standing: dict[tuple[Hashable, str], str] = {}
    for task in dict.fromkeys(columns["group"]):
        rows = [row for row, other in enumerate(columns["group"]) if other == task]
        kept: list[str] = []
        for row in sorted(rows, key=lambda row: (columns["step"][row], columns["observation"][row])):
            text = columns["observation"][row]
            if (task, text) in standing:
                continue
            similar = [k for k in kept if SequenceMatcher(None, text, k, autojunk=False).ratio() >= threshold]
            if not similar:
                kept.append(text)
            standing[task, text] = similar[0] if similar else text
    return [standing[task, text] for task, text in zip(columns["group"], columns["observation"], strict=True)]


def gigpo(columns: Columns, gamma: float, mode: str, step_advantage_w: float, threshold: float) -> list[float]:
    keys: list[Hashable] = list(zip(columns["group"], similar_observations(columns, threshold), strict=True))
    step = normalised(returns(columns, gamma), returns(unsigned(columns), gamma), keys, mode)
    whole = episode(columns, mode, "step")
    return [a + step_advantage_w * b for a, b in zip(whole.advantage, step, strict=True)]
