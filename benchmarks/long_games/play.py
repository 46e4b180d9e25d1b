"""Rollouts of all tasks at once, as columns.

Shapes: T steps (the horizon), X trajectories, N rows (steps), K keys, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo import StepBatch
from long_games.memory import Game
from long_games.rules import Bools, Floats, Ints

ROLLOUTS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One batch: `ROLLOUTS` of each task, trajectory after trajectory, steps in time order.

    Attributes:
        trajectory, time, node, key, action: int64[N]. next: int64[N], the node the step led to.
        task: int64[X] of each trajectory. won: bool[X].
    """

    trajectory: Ints
    time: Ints
    node: Ints
    key: Ints
    action: Ints
    next: Ints
    task: Ints
    won: Bools

    @property
    def size(self) -> int:
        """Number of trajectories."""
        return len(self.task)

    @property
    def score(self) -> Floats:
        """1 for the steps of a game that is won, else 0, float64[N]: the return without a discount."""
        return self.won[self.trajectory].astype(np.float64)


def play(game: Game, share_KA: Floats, number: np.random.Generator, rollouts: int = ROLLOUTS) -> Played:
    """Play every task `rollouts` times."""
    task_X = np.repeat(np.arange(len(game.start)), rollouts)
    node_X, nodes, horizon = game.start[task_X], len(game.key), game.rules.horizon
    chance_TX = number.random((horizon, 2, len(task_X)))
    up_to_KA = np.cumsum(share_KA, axis=1)[:, :-1]
    sure = game.next.shape[2] == 1
    node_TX = np.full((horizon + 1, len(task_X)), nodes)
    action_TX = np.zeros((horizon, len(task_X)), dtype=np.int64)
    node_TX[0] = node_X
    for t in range(horizon):
        here = np.flatnonzero(node_TX[t] < nodes)
        if not len(here):
            break
        node = node_TX[t, here]
        action = (up_to_KA[game.key[node]] < chance_TX[t, 0, here, None]).sum(axis=1)
        outcome = np.zeros(len(here), dtype=np.int64)
        if not sure:
            bounds = np.cumsum(game.world.share[game.state[node], action], axis=1)[:, :-1]
            outcome = (bounds < chance_TX[t, 1, here, None]).sum(axis=1)
        action_TX[t, here] = action
        node_TX[t + 1] = node_TX[t]
        node_TX[t + 1, here] = game.next[node, action, outcome]
    trajectory_N, time_N = np.nonzero(np.less(node_TX[:horizon].T, nodes))
    node_N = node_TX[time_N, trajectory_N]
    return Played(
        trajectory_N, time_N, node_N, game.key[node_N], action_TX[time_N, trajectory_N],
        node_TX[time_N + 1, trajectory_N], task_X, (node_TX == nodes + 1).any(axis=0),
    )  # fmt: skip


def step_batch(game: Game, played: Played, share_KA: Floats) -> StepBatch:
    """The input of an estimator, with the reward 1 on a winning step. `share_KA` is the policy that played."""
    last_N = np.append(played.trajectory[1:] != played.trajectory[:-1], True)
    score_N = played.score
    return StepBatch.from_columns(
        group=played.task[played.trajectory],
        trajectory=played.trajectory,
        step=played.time,
        observation=game.observation[played.node],
        next_observation=game.observation[played.next],
        action=played.action,
        reward=np.where(last_N, score_N, 0.0),
        success=score_N == 1.0,
        response_log_prob=np.log(share_KA[played.key, played.action]),
        truncated=last_N & (played.next < len(game.key)),
    )
