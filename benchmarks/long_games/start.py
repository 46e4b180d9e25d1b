"""The start policy: random logits plus a multiple of a tilt towards better actions, with a success of 30 %.

It resembles a warm-started language model, which knows something of the task, is better in some situations than in
others, and depends on the history. The tilt is computed from the hidden state; a key has the mean over its nodes.

Shapes: N nodes, A actions, K keys.
"""

from __future__ import annotations

import numpy as np

from long_games.exact import action_shares, success, values
from long_games.memory import Game
from long_games.rules import Floats

START_SUCCESS = 0.3
_DISCOUNT = 0.9
"""Discount of a step in the value from which the tilt is computed."""
_STRONGEST = 60.0
_HALVINGS = 25


class NoSuchStart(ValueError):
    """No multiple of the tilt gives this instance's policy a success of 30 %."""


def start_logits(game: Game, number: np.random.Generator) -> Floats:
    """Logits with exact success `START_SUCCESS`, float64[K, A].

    Raises:
        NoSuchStart: the success is higher without the tilt, or lower with the strongest.
    """
    actions = game.rules.actions
    by_sight = number.normal(0.0, game.rules.observation_noise, (int(game.sight.max()) + 1, actions))
    noise_KA = by_sight[game.sight] + number.normal(0.0, game.rules.memory_noise, (game.keys, actions))
    tilt_KA = _tilt(game)

    def wins(strength: float) -> float:
        return success(game, values(game, action_shares(noise_KA + strength * tilt_KA)))

    low, high = 0.0, 1.0
    if wins(low) > START_SUCCESS:
        raise NoSuchStart(f"the noise alone wins {wins(low):.2f}")
    while wins(high) < START_SUCCESS:
        low, high = high, 2.0 * high
        if high > _STRONGEST:
            raise NoSuchStart(f"a tilt of {low:g} wins only {wins(low):.2f}")
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if wins(middle) < START_SUCCESS else (low, middle)
    return noise_KA + high * tilt_KA


def _tilt(game: Game) -> Floats:
    """Value of each action minus that of the best one, divided by the best one's, -1 to 0, float64[K, A]."""
    world = game.world
    value_S = np.zeros(len(world.goal) + 2)
    value_S[-1] = 1.0
    for _ in range(game.rules.horizon):
        q_SA = _DISCOUNT * (value_S[world.next] * world.share).sum(axis=2)
        value_S[:-2] = q_SA.max(axis=1)
    best_S = q_SA.max(axis=1, keepdims=True)
    lack_SA = (q_SA - best_S) / np.maximum(best_S, 1e-12)
    cell_NA = game.key[:, None] * game.rules.actions + np.arange(game.rules.actions)
    total = np.bincount(cell_NA.ravel(), lack_SA[game.state].ravel(), minlength=game.keys * game.rules.actions)
    mean: Floats = total.reshape(game.keys, -1) / np.bincount(game.key, minlength=game.keys)[:, None]
    return mean
