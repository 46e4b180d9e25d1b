"""Rectangular batches of token sequences of unequal length.

Shape suffixes: B batch rows, P prompt tokens, T response tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]


def pad_left(sequences: Sequence[TokenIds], pad_token: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad on the left, so that all sequences end in the last column; returns ids [B, P] and mask [B, P].

    Example: `pad_left([[5, 6], [7]], 0)` -> `[[5, 6], [0, 7]]`, `[[True, True], [False, True]]`.
    """
    ids_BP, mask_BP = pad_right([sequence[::-1] for sequence in sequences], pad_token)
    return np.ascontiguousarray(ids_BP[:, ::-1]), np.ascontiguousarray(mask_BP[:, ::-1])


def pad_right(sequences: Sequence[TokenIds], pad_token: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad on the right; returns ids [B, T] and mask [B, T].

    Example: `pad_right([[5, 6], [7]], 0)` -> `[[5, 6], [7, 0]]`, `[[True, True], [True, False]]`.
    """
    lengths_B = np.fromiter((len(sequence) for sequence in sequences), dtype=np.int64, count=len(sequences))
    width = int(lengths_B.max(initial=0))
    mask_BT = np.arange(width) < lengths_B[:, None]
    ids_BT = np.full((len(sequences), width), pad_token, dtype=np.int64)
    if width:
        ids_BT[mask_BT] = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
    return ids_BT, mask_BT


def length_buckets(
    lengths: Sequence[int] | NDArray[np.int64], *, max_tokens: int, max_rows: int | None = None
) -> list[NDArray[np.int64]]:
    """Indices in batches of similar length, each of at most `max_tokens` padded tokens (rows · longest) and `max_rows`.

    Every index appears once; longest batches first, so that out-of-memory errors occur at once. A sequence
    longer than `max_tokens` has a separate batch. Equal lengths keep their order.

    Example: `length_buckets([3, 9, 4, 8], max_tokens=18)` -> `[[1, 3], [2, 0]]`.
    """
    lengths_N = np.asarray(lengths, dtype=np.int64)
    order_N = np.argsort(-lengths_N, kind="stable")
    buckets: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order_N):
        longest = max(1, int(lengths_N[order_N[start]]))
        rows = max(1, max_tokens // longest)
        rows = min(rows, max_rows) if max_rows else rows
        buckets.append(order_N[start : start + rows])
        start += rows
    return buckets


def cuts(lengths: Sequence[int] | NDArray[np.int64], *, overhead: int) -> list[slice]:
    """Cut descending lengths into runs, each padded to its longest, at the least cost.

    A run costs its padded tokens (members · longest) plus `overhead`, the cost of one forward pass in tokens.

    Example: `cuts([9, 8, 3, 3], overhead=5)` -> `[slice(0, 2), slice(2, 4)]`: 18 + 6 + 2 · 5 tokens instead of 36 + 5.
    """
    lengths_N = np.asarray(lengths, dtype=np.int64)
    return cheapest_runs(len(lengths_N), lambda end: np.arange(end, 0, -1) * lengths_N[:end] + overhead)


def cheapest_runs(count: int, costs: Callable[[int], NDArray[np.int64]]) -> list[slice]:
    """Cut 0 to `count` - 1 into runs at the least cost.

    Args:
        count: number of items.
        costs: end -> int64[end], the costs of the runs from each start to `end`.
    """
    cost_N = np.zeros(count + 1, dtype=np.int64)  # of the first n
    begin_N = np.zeros(count + 1, dtype=np.int64)  # where the last run of the first n begins
    for end in range(1, count + 1):
        costs_N = cost_N[:end] + costs(end)
        begin_N[end] = np.argmin(costs_N)
        cost_N[end] = costs_N[begin_N[end]]
    runs: list[slice] = []
    end = count
    while end:
        runs.append(slice(int(begin_N[end]), end))
        end = int(begin_N[end])
    return runs[::-1]
