"""History changes only the policy: fully observed layers of rooms, whose future does not depend on the past.

An action leads to a room of the next layer, with probability 0.2 to another one; room and action in the last layer
determine the probability to win. The start policy depends strongly on the last two steps, so returns differ by history,
but values do not: groups by history are smaller without a benefit.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import LOST, WON, Rules, State

LAYERS, ROOMS, ACTIONS, ASTRAY = 6, 3, 3, 0.2
WORTH = (0.0, 0.05, 0.75)


def policy_only(number: np.random.Generator) -> Rules:
    """Draw the transitions of each goal, and the probabilities to win in the last layer."""
    meant = number.integers(0, ROOMS, (4, LAYERS, ROOMS, ACTIONS))
    other = (meant + number.integers(1, ROOMS, meant.shape)) % ROOMS
    worth = np.stack([number.permutation(WORTH) for _ in range(4)])
    gain = number.permuted(np.tile([0.0, 0.05, 0.15], (4, ROOMS, 1)), axis=2)
    starts = tuple((goal, 0, room) for goal in range(4) for room in (0, 1, 2, int(number.integers(ROOMS))))

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, layer, room = state
        if layer == LAYERS - 1:
            chance = float(worth[goal, room] + gain[goal, room, action])
            return (chance, WON), (1.0 - chance, LOST)
        here = (goal, layer, room, action)
        return (1.0 - ASTRAY, (goal, layer + 1, int(meant[here]))), (ASTRAY, (goal, layer + 1, int(other[here])))

    return Rules(ACTIONS, LAYERS, starts, step, lambda state: state[1:], observation_noise=0.3, memory_noise=1.5)
