"""The estimators that are compared, and three that know what nobody can know.

Shapes: N rows, T steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgpo import compute_advantages
from long_games.exact import action_values, values
from long_games.memory import Game
from long_games.play import Played, step_batch
from long_games.rules import Floats

GAMMA = 0.95
"""Of every estimator, as in the recipes, and of the oracle that says so. The other two have none."""
REFERENCE = "gigpo"
ORACLE_BASELINE, DISCOUNTED_BASELINE, ORACLE_CREDIT = "R - V", "R - V, discounted", "Q - V"


@dataclass(frozen=True, slots=True)
class Contender:
    """An estimator with options, under the name the tables use.

    Attributes:
        name: of the row. estimator: for `compute_advantages`; empty: an oracle, named by `name`.
        options: of the estimator.

    Example: `Contender("gigpo", "gigpo")`.
    """

    name: str
    estimator: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def shipped(self) -> bool:
        """Whether it can be used where the answers are not known."""
        return bool(self.estimator)


_PLAIN = {"mode": "mean_norm"}
CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(REFERENCE, "gigpo"),
        Contender("atd", "atd:ATD"),
        Contender("hgpo paper", "hgpo"),
        Contender("hgpo verl-agent", "hgpo", {"preset": "verl-agent"}),
        Contender("hgpo pooled", "hgpo", {**_PLAIN, "weight_type": "pooled"}),
        Contender("mixed_effects", "mixed_effects"),
        Contender("grpo", "grpo"),
        Contender("rloo", "rloo"),
        Contender("gigpo, no std", "gigpo", _PLAIN),
        Contender("g2po", "g2po"),
        Contender("graphgpo", "graphgpo"),
        Contender("gagpo", "atd:ATD", {"lambda_min": 0.95, "trust": 0.0}),
        Contender("gagpo, lambda .5", "atd:ATD", {"lambda_min": 0.5, "trust": 0.0}),
        Contender(ORACLE_BASELINE),
        Contender(DISCOUNTED_BASELINE),
        Contender(ORACLE_CREDIT),
    )
}


def advantages(contender: Contender, game: Game, played: Played, share_KA: Floats, value_TN: Floats) -> Floats:
    """Advantage of every row, float64[N]; the policy that played is `share_KA`, its exact values are `value_TN`."""
    if contender.shipped:
        return compute_advantages(step_batch(game, played), contender.estimator, GAMMA, **contender.options).values
    if contender.name == DISCOUNTED_BASELINE:
        value_TN = values(game, share_KA, GAMMA)
        length_X = np.bincount(played.trajectory)
        return_N = played.score * GAMMA ** (length_X[played.trajectory] - 1 - played.time)
        discounted: Floats = return_N - value_TN[played.time, played.node]
        return discounted
    value_N = value_TN[played.time, played.node]
    if contender.name == ORACLE_BASELINE:
        return played.score - value_N
    return action_values(game, value_TN, played.time, played.node, played.action) - value_N
