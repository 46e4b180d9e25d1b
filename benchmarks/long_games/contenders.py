"""The estimators that are compared, and three oracles, which use exact values.

Shapes: N rows, T steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hgpo import compute_advantages
from long_games.exact import action_values, values
from long_games.memory import Game
from long_games.play import Played, step_batch
from long_games.rules import Floats

GAMMA = 0.95
"""Discount of every estimator, as in the recipes, and of `DISCOUNTED_BASELINE`; the other oracles have none."""
REFERENCE = "nested_td"
"""Tables have the differences of other estimators to this one."""
ORACLE_BASELINE, DISCOUNTED_BASELINE, ORACLE_CREDIT = "R - V", "R - V, discounted", "Q - V"

_PLAIN = {"mode": "mean_norm"}
SHIPPED: dict[str, dict[str, Any]] = {
    REFERENCE: {"estimator": "nested_td"},
    "gigpo": {"estimator": "gigpo"},
    "hgpo paper": {"estimator": "hgpo"},
    "hgpo verl-agent": {"estimator": "hgpo", "preset": "verl-agent"},
    "hgpo pooled": {"estimator": "hgpo", **_PLAIN, "weight_type": "pooled"},
    "mixed_effects": {"estimator": "mixed_effects"},
    "grpo": {"estimator": "grpo"},
    "rloo": {"estimator": "rloo"},
    "gigpo, no std": {"estimator": "gigpo", **_PLAIN},
    "g2po": {"estimator": "g2po"},
    "graphgpo": {"estimator": "graphgpo"},
}
"""Name of a row -> keywords of `compute_advantages`."""
CONTENDERS = (*SHIPPED, ORACLE_BASELINE, DISCOUNTED_BASELINE, ORACLE_CREDIT)


def advantages(name: str, game: Game, played: Played, share_KA: Floats, value_TN: Floats) -> Floats:
    """Advantage of every row, float64[N]; the policy that played is `share_KA`, its exact values are `value_TN`."""
    if name in SHIPPED:
        return compute_advantages(step_batch(game, played, share_KA), gamma=GAMMA, **SHIPPED[name]).values
    if name == DISCOUNTED_BASELINE:
        value_TN = values(game, share_KA, GAMMA)
        length_X = np.bincount(played.trajectory)
        return_N = played.score * GAMMA ** (length_X[played.trajectory] - 1 - played.time)
        discounted: Floats = return_N - value_TN[played.time, played.node]
        return discounted
    value_N = value_TN[played.time, played.node]
    if name == ORACLE_BASELINE:
        return played.score - value_N
    return action_values(game, value_TN, played.time, played.node, played.action) - value_N
