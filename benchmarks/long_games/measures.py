"""Measures of an estimator: the cosine of its gradient with the exact one at the start policy, and a learning curve.

Shapes: K keys, A actions.
"""

from __future__ import annotations

import numpy as np

from long_games.contenders import advantages
from long_games.exact import action_shares, gradient, success, values
from long_games.memory import Game
from long_games.play import play
from long_games.rules import Floats
from long_games.updates import PpoAdam, batch_gradient, equal_divergence

UPDATES = 40


def cosines(
    game: Game, logit_KA: Floats, contender: str, number: np.random.Generator, batches: int
) -> dict[str, float]:
    """The mean cosine of one batch's gradient with the exact one, "batch", and the cosine of the mean gradient, "mean".

    Noise adds to the length of the mean of finitely many batches, but not to the products of *different* batches, so
    |E g|^2 is estimated by the mean of these; the cosine of the mean can then be slightly above 1.

    Raises:
        ValueError: fewer than two batches.
    """
    if batches < 2:
        raise ValueError(f"the mean gradient needs at least 2 batches, got {batches}")
    share_KA = action_shares(logit_KA)
    value_TN = values(game, share_KA)
    true = gradient(game, share_KA, value_TN).ravel()
    true /= np.linalg.norm(true)
    total, squares, along, cosine = np.zeros_like(true), 0.0, 0.0, 0.0
    for _ in range(batches):
        played = play(game, share_KA, number)
        advantage_N = advantages(contender, game, played, share_KA, value_TN)
        found = batch_gradient(played, advantage_N, share_KA).ravel()
        length = float(np.linalg.norm(found))
        total += found
        squares += length**2
        along += float(found @ true)
        cosine += float(found @ true) / length if length else 0.0
    length_of_mean = (float(total @ total) - squares) / (batches * (batches - 1))
    return {"batch": cosine / batches, "mean": along / batches / max(length_of_mean, 1e-30) ** 0.5}


def curve(
    game: Game,
    logit_KA: Floats,
    contender: str,
    step: float | PpoAdam,
    number: np.random.Generator,
    updates: int = UPDATES,
) -> list[float]:
    """Success before the first update and after each of them, 1 + updates numbers.

    Args:
        game: the game. logit_KA: the start policy.
        contender: the estimator of the advantages.
        step: the divergence of each update (`equal_divergence`), or an optimiser.
        number: random numbers of the rollouts and of the optimiser's mini-batches.
        updates: number of updates, each with `play.ROLLOUTS` new rollouts of each task.
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
