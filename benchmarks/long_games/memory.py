"""The states of a world together with the agent's memory: the nodes of an exact solution.

The policy sees the goal, the observation and the last K = 2 (observation, action) pairs; that is its *key*. A *node* is
a state of the world with such a memory. The policy depends on the node's key only, and the next node on the node and
the action only, so nodes are the states of a Markov decision process whose policy is a table.

Shapes: M tasks, S states, A actions, B outcomes, N nodes, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from long_games.rules import Ints, Rules, World, world


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """An instance as it is solved and played; node N is a lost game, N + 1 a won one.

    Attributes:
        rules, world: its rules and its world.
        next: int64[N, A, B], the node an outcome leads to. state, key: int64[N] of each node.
        observation: int64[N + 2] of each node; the two ends have observations of their own.
        start: int64[M], the start node of each task.
        sight: int64[K], the number of each key's (goal, observation).

    Example: a corridor of three rooms with two actions has a node for each room and each possible memory there.
    """

    rules: Rules
    world: World
    next: Ints
    state: Ints
    key: Ints
    observation: Ints
    start: Ints
    sight: Ints

    @property
    def keys(self) -> int:
        """Number of keys: rows of the policy's table."""
        return len(self.sight)


def game(rules: Rules) -> Game:
    """Find the nodes that can be reached within the horizon, and number them and their keys."""
    made = world(rules)
    pairs = made.observations * rules.actions + 1  # 0: no pair yet
    start_M = made.start * pairs * pairs
    reached = frontier = np.unique(start_M)
    for _ in range(rules.horizon):
        after = _after(made, frontier, pairs)
        frontier = np.setdiff1d(after[after >= 0], reached)
        if not len(frontier):
            break
        reached = np.union1d(reached, frontier)
    after = _after(made, reached, pairs)
    # Nodes that only the last step reaches have no actions: their next nodes may be missing and are never used.
    place = np.minimum(np.searchsorted(reached, after), len(reached) - 1)
    known = reached[place] == after
    next_NAB = np.where(after < 0, len(reached) - 1 - after, np.where(known, place, len(reached)))

    state_N, memory_N = np.divmod(reached, pairs * pairs)
    sight_N = made.goal[state_N] * made.observations + made.observation[state_N]
    _, first, key_N = np.unique(sight_N * pairs * pairs + memory_N, return_index=True, return_inverse=True)
    _, sight_K = np.unique(sight_N[first], return_inverse=True)
    seen_N = np.concatenate([made.observation[state_N], made.observations + np.arange(2)])
    start = np.searchsorted(reached, start_M)
    return Game(rules, made, next_NAB, state_N, key_N, seen_N, start, sight_K)


def _after(made: World, code_N: Ints, pairs: int) -> Ints:
    """Codes (state, older pair, newer pair) that follow, int64[N, A, B]; -1 for a lost game, -2 for a won one."""
    state_N, memory_N = np.divmod(code_N, pairs * pairs)
    actions = made.next.shape[1]
    pair_NA = made.observation[state_N][:, None] * actions + np.arange(actions) + 1
    memory_NA = (memory_N % pairs)[:, None] * pairs + pair_NA
    next_NAB = made.next[state_N]
    code_NAB: Ints = next_NAB * pairs * pairs + memory_NA[:, :, None]
    ended = next_NAB - len(made.goal)  # 0 lost, 1 won
    return np.where(ended >= 0, -1 - ended, code_NAB)
