"""Learning curves: the exact success after each update.

Shapes: K keys, A actions.
"""

from __future__ import annotations

import numpy as np

from long_games.contenders import Contender, advantages
from long_games.exact import action_shares, success, values
from long_games.memory import Game
from long_games.play import play
from long_games.rules import Floats
from long_games.updates import PpoAdam, batch_gradient, equal_divergence

UPDATES = 40


def curve(
    game: Game,
    logit_KA: Floats,
    contender: Contender,
    step: float | PpoAdam,
    number: np.random.Generator,
    updates: int = UPDATES,
) -> list[float]:
    """Success before the first update and after each of them, 1 + updates numbers.

    Args:
        game: what is played. logit_KA: the start policy.
        contender: whose advantages are learned from.
        step: how far the policy may diverge at each update (`equal_divergence`), or an optimiser.
        number: of the rollouts and, for the optimiser, of its mini-batches.
        updates: how many, with `play.ROLLOUTS` new rollouts of each task for each.
    """
    found, own = [], number.spawn(1)[0]
    for update in range(updates + 1):
        share_KA = action_shares(logit_KA)
        value_TN = values(game, share_KA)
        found.append(success(game, value_TN))
        if update < updates:
            played = play(game, share_KA, number)
            advantage_N = advantages(contender, game, played, share_KA, value_TN)
            if isinstance(step, PpoAdam):
                logit_KA = step.update(logit_KA, played, advantage_N, own)
            else:
                direction_KA = batch_gradient(played, advantage_N, share_KA)
                logit_KA = equal_divergence(logit_KA, direction_KA, played.key, step)
    return found
