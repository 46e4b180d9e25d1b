"""Long loops: two keys have to be found in order on a ring of places, and shortcuts lead back.

The agent sees its place and its number of keys. One action leads to the next place of the ring, two lead to random
places (their order differs between places), and one uses the place: it takes the next key or, with both keys, opens
the exit. Thirty steps are enough for three rounds. Every task is a goal of its own.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import WON, Rules, State

GOALS, PLACES, KEYS, HORIZON = 16, 8, 2, 30
USE = 3


def loops(number: np.random.Generator) -> Rules:
    """Draw the shortcuts, and for each goal where the keys and the exit are."""
    leads = np.stack([(np.arange(PLACES) + 1) % PLACES, *number.integers(0, PLACES, (2, PLACES))], axis=1)
    leads = number.permuted(leads, axis=1)
    wanted = np.stack([number.choice(PLACES, KEYS + 1, replace=False) for _ in range(GOALS)])
    starts = tuple((goal, int(place), 0) for goal, place in enumerate(number.integers(0, PLACES, GOALS)))

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place, keys = state
        if action != USE:
            return ((1.0, (goal, int(leads[place, action]), keys)),)
        if place != wanted[goal, keys]:
            return ((1.0, state),)
        return ((1.0, WON if keys == KEYS else (goal, place, keys + 1)),)

    return Rules(4, HORIZON, starts, step, lambda state: state[1:])
