"""HGPO's advantages computed as in the published code, rewritten from its description; the baseline for speed.

Source: verl-agent's `recipe/hgpo` and `gigpo/core_gigpo.py`, mode "mean_std_norm". Structure and cost are those of the
published code: each row's return is found by a scan over all rows, contexts are keys of a dict, and every group and
every step has its own small tensors. For comparisons to the last digits, two things differ: numbers are float64, and a
level advantage below `ROUNDING`, which is a rounding error, counts as 0. (The published float32 code tests whether it
is exactly 0, so rounding decides which levels are weighted.) Rows must be in time order.

Shapes: N steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

ROUNDING = 1e-7
EPSILON = 1e-6


def objects(values: list[Any]) -> np.ndarray:
    """A numpy array of Python objects, as the published code stores texts and ids."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def step_returns(reward_N: np.ndarray, trajectory_N: np.ndarray, gamma: float) -> np.ndarray:
    """Discounted returns float64[N]. Every row searches all rows for its trajectory: quadratic in N."""
    of_trajectory = {}
    for name in np.unique(trajectory_N):
        reward_T = reward_N[np.where(trajectory_N == name)[0]]
        return_T = np.zeros_like(reward_T)
        later = 0.0
        for t in range(len(reward_T) - 1, -1, -1):
            later = reward_T[t] + gamma * later
            return_T[t] = later
        of_trajectory[name] = return_T
    return_N = np.zeros_like(reward_N)
    for row, name in enumerate(trajectory_N):
        rows_T = np.where(trajectory_N == name)[0]
        place = np.where(rows_T == row)[0][0]
        return_N[row] = of_trajectory[name][place]
    return return_N


def step_advantages(
    return_N: np.ndarray,
    observation_N: np.ndarray,
    group_N: np.ndarray,
    trajectory_N: np.ndarray,
    history_length: int,
    alpha: float = 1.0,
) -> np.ndarray:
    """Weighted level advantages float64[N]: dicts of lists, one small tensor after the other."""
    all_returns = torch.from_numpy(return_N)
    advantage_N = torch.zeros(len(return_N), dtype=all_returns.dtype)
    for name in np.unique(group_N):
        rows = np.flatnonzero(group_N == name)
        _, trajectory_of = np.unique(trajectory_N[rows], return_inverse=True)
        members: list[list[int]] = [[] for _ in range(trajectory_of.max() + 1)]
        for place, which in enumerate(trajectory_of):
            members[which].append(place)
        trajectory_rows = [rows[np.asarray(places)] for places in members]
        trajectory_returns = [all_returns.index_select(0, torch.as_tensor(rows_T)) for rows_T in trajectory_rows]
        contexts = contexts_of(trajectory_rows, observation_N, history_length)
        items = level_items(contexts, trajectory_returns)
        for which, rows_T in enumerate(trajectory_rows):
            for t, row in enumerate(rows_T):
                advantage_N[int(row)] = weighted_mean(items.get((which, t), []), all_returns.dtype, alpha)
    return advantage_N.numpy()


def contexts_of(
    trajectory_rows: list[np.ndarray], observation_N: np.ndarray, history_length: int
) -> dict[tuple[int, tuple[Hashable, ...]], list[tuple[int, int]]]:
    """Which steps (trajectory, time) end in the same k observations, for k = 1 … history_length + 1."""
    contexts: dict[tuple[int, tuple[Hashable, ...]], list[tuple[int, int]]] = defaultdict(list)
    for which, rows_T in enumerate(trajectory_rows):
        seen = [hashable(observation) for observation in observation_N[rows_T]]
        for t in range(len(seen)):
            for k in range(1, min(history_length, t) + 2):
                contexts[k, tuple(seen[t + 1 - k : t + 1])].append((which, t))
    return contexts


def level_items(
    contexts: dict[tuple[int, tuple[Hashable, ...]], list[tuple[int, int]]], trajectory_returns: list[torch.Tensor]
) -> dict[tuple[int, int], list[tuple[int, torch.Tensor]]]:
    """The advantage of each step inside each of its groups of two or more."""
    items: dict[tuple[int, int], list[tuple[int, torch.Tensor]]] = defaultdict(list)
    for (k, _), steps in contexts.items():
        if len(steps) < 2:
            continue
        returns = torch.stack([trajectory_returns[which][t] for which, t in steps], dim=0)
        normalised = (returns - returns.mean()) / (returns.std(unbiased=False) + EPSILON)
        for place, step in enumerate(steps):
            items[step].append((k, normalised[place]))
    return items


def weighted_mean(items: list[tuple[int, torch.Tensor]], dtype: torch.dtype, alpha: float) -> torch.Tensor:
    """Mean of a step's level advantages that are not 0, weighted by (k + 1)^alpha."""
    if not items:
        return torch.zeros((), dtype=dtype)
    advantages = torch.stack([advantage.to(dtype) for _, advantage in items], dim=0)
    lengths = torch.tensor([k for k, _ in items], dtype=dtype)
    counted = advantages.abs() > ROUNDING
    if not counted.any():
        return torch.zeros((), dtype=dtype)
    weights = (lengths[counted] + 1) ** alpha
    weights = weights / (weights.sum() + EPSILON)
    return (weights * advantages[counted]).sum()


def hashable(value: Any) -> Hashable:
    """The value as a dict key; the published code tells arrays, lists and tuples apart here, too."""
    if isinstance(value, (int, float, str, bool)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be a key")
