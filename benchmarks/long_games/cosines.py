"""How well a batch's gradient, and the mean over batches, point where success grows, at the start policy."""

from __future__ import annotations

import numpy as np

from long_games.contenders import Contender, advantages
from long_games.exact import action_shares, gradient, values
from long_games.memory import Game
from long_games.play import play
from long_games.rules import Floats
from long_games.updates import batch_gradient


def cosines(
    game: Game, logit_KA: Floats, contender: Contender, number: np.random.Generator, batches: int
) -> dict[str, float]:
    """The mean cosine of one batch's gradient with the exact one, "batch", and the cosine of the mean gradient, "mean".

    The mean of finitely many batches has a length that noise adds to. The products of *different* batches have none of
    it, so |E g|^2 is estimated by their mean; the cosine of the mean can come out a little over 1.

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
