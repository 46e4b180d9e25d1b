"""Search among aliased places: six places around home, which come in three looks, hide what is to be brought home.

The agent sees the look of the place, whether it holds the thing, and whether it just searched in vain; not which of the
two places of that look it is at. Actions: left, right, search, deliver. To deliver anywhere but at home loses the game,
and so does delivering nothing. Each goal has four hiding places, one a task.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import LOST, WON, Rules, State

PLACES, HORIZON = 6, 16
LEFT, RIGHT, SEARCH, DELIVER = range(4)
HOME, HELD = 0, -1


def search(number: np.random.Generator) -> Rules:
    """Draw where the looks are and where things hide."""
    look = [-1, *number.permutation(np.repeat(np.arange(3), 2)).tolist()]  # place 0 is home
    starts = tuple(
        (goal, HOME, int(place), False)
        for goal in range(4)
        for place in number.choice(np.arange(1, PLACES + 1), 4, replace=False)
    )

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place, hidden, _ = state
        after: State | str
        if action in (LEFT, RIGHT):
            after = (goal, (place + (1 if action == RIGHT else -1)) % (PLACES + 1), hidden, False)
        elif action == SEARCH:
            after = (goal, place, HELD, False) if place == hidden else (goal, place, hidden, True)
        else:
            after = WON if place == HOME and hidden == HELD else LOST
        return ((1.0, after),)

    return Rules(4, HORIZON, starts, step, lambda state: (look[state[1]], state[2] == HELD, state[3]))
