"""Weights of the levels of one step: longer contexts count more.

Shapes: N steps in group order, I items (levels, with the episode level first where there is
one), D the longest used item of a step.
"""

from __future__ import annotations

import numpy as np

from hgpo.columns import BoolArray, FloatArray

MISSING = ("zero", "renormalize", "drop_zero")
DROP_ZERO_EPSILON = 1e-6


def length_weights(
    length_I: list[int], alpha: float, used_IN: list[BoolArray], missing: str
) -> list[FloatArray | float]:
    """Weight of each item: I arrays float64[N], or I numbers where all steps have the same.

        "zero":         w_i = L_i^alpha / sum_j L_j^alpha over all items: an item with nothing to say adds 0 and keeps
                        its share, which shrinks the sum (paper: fixed weights)
        "renormalize":  w_i = L_i^alpha / sum_{j used} L_j^alpha for used items, 0 for others
        "drop_zero":    as "renormalize" with 1e-6 added to the sum, as published (the caller marks items with
                        advantage 0 as unused)

    Powers are taken of L_i / L_d with d the step's longest used item, so that no alpha overflows and alpha = inf is
    the limit: the longest used item alone.

    Args:
        length_I: L of each item, at least 1, ascending.
        alpha: at least 0, may be inf.
        used_IN: per item, whether it has something to say about each step.
        missing: what happens to the weight of an item that has not.
    """
    length = np.array(length_I, dtype=np.float64)
    if missing == "zero":
        power_I = (length / length[-1]) ** alpha
        weights: list[float] = (power_I / power_I.sum()).tolist()
        return list(weights)

    with np.errstate(over="ignore"):  # items longer than the longest used one are unused: tril clears their powers
        power_ID = np.tril((length[None, :] / length[:, None]) ** alpha).T.copy()
    count = len(used_IN[0])
    longest_N = np.zeros(count, dtype=np.int64)
    for item, used_N in enumerate(used_IN):
        np.copyto(longest_N, item, where=used_N)
    weight_IN = np.empty((len(used_IN), count))
    for weight_N, power_D, used_N in zip(weight_IN, power_ID, used_IN, strict=True):
        power_D.take(longest_N, out=weight_N, mode="clip")  # "clip" because "raise" copies; all items are in range
        weight_N *= used_N
    total_N = np.zeros(count)
    for weight_N in weight_IN:
        total_N += weight_N
    if missing == "drop_zero":
        total_N += (DROP_ZERO_EPSILON * length**-alpha).take(longest_N)
    total_N[total_N == 0.0] = 1.0  # nothing used: all weights are 0 already
    for weight_N in weight_IN:
        weight_N /= total_N
    return list(weight_IN)
