"""What is done with a batch's advantages: its gradient, a step of a given length along it, and PPO with Adam.

Shapes: N rows, K keys, A actions, U of the keys that the batch visited.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from long_games.exact import action_shares
from long_games.play import Played
from long_games.rules import Floats, Ints

_CLOSE = 1e-4
_ROUNDS = 60


def batch_gradient(played: Played, advantage_N: Floats, share_KA: Floats) -> Floats:
    """Mean over trajectories of the sum of A * d log pi(action | key), by the logits, float64[K, A]."""
    return _score(played.key, played.action, advantage_N, share_KA) / played.size


def _score(key_N: Ints, action_N: Ints, weight_N: Floats, share_KA: Floats) -> Floats:
    """Sum over rows of weight * d log pi(action | key)."""
    keys, actions = share_KA.shape
    taken_KA = np.bincount(key_N * actions + action_N, weight_N, minlength=keys * actions).reshape(keys, actions)
    score: Floats = taken_KA - taken_KA.sum(axis=1, keepdims=True) * share_KA
    return score


def divergence(logit_UA: Floats, changed_UA: Floats, weight_U: Floats) -> float:
    """KL(old || new) of a policy's rows, weighted; the weights add up to 1."""
    log_ratio_UA = _log_shares(logit_UA) - _log_shares(changed_UA)
    return float(weight_U @ (action_shares(logit_UA) * log_ratio_UA).sum(axis=1))


def _log_shares(logit_UA: Floats) -> Floats:
    """Finite also where the share itself is 0."""
    lower_UA = logit_UA - logit_UA.max(axis=1, keepdims=True)
    shares: Floats = lower_UA - np.log(np.exp(lower_UA).sum(axis=1, keepdims=True))
    return shares


def equal_divergence(logit_KA: Floats, direction_KA: Floats, key_N: Ints, budget: float) -> Floats:
    """Logits after a step along the direction that moves the visited steps' policy by `budget` on average.

    The average is over the batch's steps of KL(old || new) at their keys. A direction of 0 moves nothing.
    """
    key_U, visits_U = np.unique(key_N, return_counts=True)
    weight_U, logit_UA, direction_UA = visits_U / len(key_N), logit_KA[key_U], direction_KA[key_U]
    largest = np.abs(direction_UA).max()
    if largest == 0.0:
        return logit_KA
    size = 0.1 / largest
    for _ in range(_ROUNDS):  # converges, as the divergence grows at least linearly and at most quadratically
        moved = divergence(logit_UA, logit_UA + size * direction_UA, weight_U)
        if abs(moved / budget - 1.0) < _CLOSE:
            break
        size *= min(10.0, (budget / max(moved, 1e-30)) ** 0.5)
    changed_KA = logit_KA.copy()
    changed_KA[key_U] += size * direction_UA
    return changed_KA


@dataclass(slots=True)
class PpoAdam:
    """Adam on PPO's clipped objective; Adam's state is kept between updates.

    Attributes:
        rate: Adam's learning rate, in logits. clip: of the ratio. epochs: passes over a batch. parts: mini-batches of
            each.
    """

    rate: float
    clip: float = 0.2
    epochs: int = 2
    parts: int = 4
    _first: Floats = field(default_factory=lambda: np.zeros(()))
    _second: Floats = field(default_factory=lambda: np.zeros(()))
    _steps: int = 0

    def update(self, logit_KA: Floats, played: Played, advantage_N: Floats, number: np.random.Generator) -> Floats:
        """The logits after `epochs` passes over the batch's steps, in random mini-batches."""
        old_N = action_shares(logit_KA)[played.key, played.action]
        for _ in range(self.epochs):
            for rows in np.array_split(number.permutation(len(played.key)), self.parts):
                share_KA, key_R, action_R = action_shares(logit_KA), played.key[rows], played.action[rows]
                ratio_R, advantage_R = share_KA[key_R, action_R] / old_N[rows], advantage_N[rows]
                clipped_R = np.where(advantage_R > 0, ratio_R > 1.0 + self.clip, ratio_R < 1.0 - self.clip)
                weight_R = np.where(clipped_R, 0.0, ratio_R * advantage_R) / len(rows)
                logit_KA = logit_KA + self._adam(_score(key_R, action_R, weight_R, share_KA))
        return logit_KA

    def _adam(self, gradient_KA: Floats) -> Floats:
        self._steps += 1
        self._first = 0.9 * self._first + 0.1 * gradient_KA
        self._second = 0.999 * self._second + 0.001 * gradient_KA**2
        first, second = self._first / (1.0 - 0.9**self._steps), self._second / (1.0 - 0.999**self._steps)
        step: Floats = self.rate * first / (np.sqrt(second) + 1e-8)
        return step
