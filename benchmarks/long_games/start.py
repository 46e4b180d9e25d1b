"""The policy a learning curve begins with: noise, tilted towards what is right until it wins three games in ten.

A warm start of a language model is like that: it knows something of the task, differs from situation to situation, and
what it does depends on what it did before. The tilt knows the hidden state; the policy, which sees less, gets the mean
over the nodes that look alike to it.

Shapes: N nodes, A actions, K keys.
"""

from __future__ import annotations

import numpy as np

from long_games.exact import action_shares, success, values
from long_games.memory import Game
from long_games.rules import Floats

START_SUCCESS = 0.3
_DISCOUNT = 0.9
"""What a wasted step multiplies the worth of a state by, for the tilt."""
_STRONGEST = 60.0
_HALVINGS = 25


class NoSuchStart(ValueError):
    """No tilt makes this instance's policy win three games in ten."""


def start_logits(game: Game, number: np.random.Generator) -> Floats:
    """Logits with exact success `START_SUCCESS`, float64[K, A].

    Raises:
        NoSuchStart: the noise alone wins more, or the strongest tilt less.
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
    """How much worse an action is than the best one, as a share of the best one's worth, 0 to -1, float64[K, A]."""
    world = game.world
    worth_S = np.zeros(len(world.goal) + 2)
    worth_S[-1] = 1.0
    for _ in range(game.rules.horizon):
        q_SA = _DISCOUNT * (worth_S[world.next] * world.share).sum(axis=2)
        worth_S[:-2] = q_SA.max(axis=1)
    best_S = q_SA.max(axis=1, keepdims=True)
    lack_SA = (q_SA - best_S) / np.maximum(best_S, 1e-12)
    cell_NA = game.key[:, None] * game.rules.actions + np.arange(game.rules.actions)
    total = np.bincount(cell_NA.ravel(), lack_SA[game.state].ravel(), minlength=game.keys * game.rules.actions)
    mean: Floats = total.reshape(game.keys, -1) / np.bincount(game.key, minlength=game.keys)[:, None]
    return mean
