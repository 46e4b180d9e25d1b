"""Values, success and policy gradient of a tabular policy, exact, by dynamic programming over time and nodes.

Shapes: T steps (the horizon), N nodes, A actions, B outcomes, K keys.
"""

from __future__ import annotations

import numpy as np

from long_games.memory import Game
from long_games.rules import Floats, Ints


def action_shares(logit_KA: Floats) -> Floats:
    """P(action | key), float64[K, A]."""
    power_KA = np.exp(logit_KA - logit_KA.max(axis=1, keepdims=True))
    share: Floats = power_KA / power_KA.sum(axis=1, keepdims=True)
    return share


def values(game: Game, share_KA: Floats, discount: float = 1.0) -> Floats:
    """Expected discounted reward from each node at each time, float64[T + 1, N + 2]; without a discount, P(win).

    The reward 1 of the winning step is not discounted at that step, so the last column, a won game, is 1 / discount.
    """
    nodes = len(game.key)
    value_TN = np.zeros((game.rules.horizon + 1, nodes + 2))
    value_TN[:, -1] = 1.0 / discount
    share_NA, weight_NAB = share_KA[game.key], game.world.share[game.state]
    sure = weight_NAB.shape[2] == 1
    for t in reversed(range(game.rules.horizon)):
        follows_NAB = value_TN[t + 1].take(game.next)
        q_NA = follows_NAB[..., 0] if sure else np.einsum("nab,nab->na", follows_NAB, weight_NAB)
        np.einsum("na,na->n", q_NA, share_NA, out=value_TN[t, :nodes])
        if discount != 1.0:
            value_TN[t, :nodes] *= discount
    return value_TN


def success(game: Game, value_TN: Floats) -> float:
    """Probability to win, the mean over the tasks."""
    return float(value_TN[0, game.start].mean())


def action_values(game: Game, value_TN: Floats, time_X: Ints, node_X: Ints, action_X: Ints) -> Floats:
    """Q(t, node, action) of any number of them, float64[X]."""
    follows_XB = value_TN[time_X[:, None] + 1, game.next[node_X, action_X]]
    q: Floats = (follows_XB * game.world.share[game.state[node_X], action_X]).sum(axis=1)
    return q


def gradient(game: Game, share_KA: Floats, value_TN: Floats) -> Floats:
    """Gradient of `success` by the logits, float64[K, A].

    d J / d logit(k, a) = sum over t and the nodes with key k of P(node at t) pi(a | k) (Q_t(node, a) - V_t(node))
    """
    nodes, actions = len(game.key), share_KA.shape[1]
    share_NA, weight_NAB = share_KA[game.key], game.world.share[game.state]
    visit_N = np.bincount(game.start, minlength=nodes) / len(game.start)
    total_NA = np.zeros((nodes, actions))
    for t in range(game.rules.horizon):
        taken_NA = visit_N[:, None] * share_NA
        q_NA = (value_TN[t + 1].take(game.next) * weight_NAB).sum(axis=2)
        total_NA += taken_NA * (q_NA - value_TN[t, :nodes, None])
        flow_NAB = taken_NA[..., None] * weight_NAB
        visit_N = np.bincount(game.next.ravel(), flow_NAB.ravel(), minlength=nodes + 2)[:nodes]
    cell_NA = game.key[:, None] * actions + np.arange(actions)
    return np.bincount(cell_NA.ravel(), total_NA.ravel(), minlength=game.keys * actions).reshape(game.keys, actions)
