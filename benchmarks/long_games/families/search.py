"""Search among aliased places: a thing is hidden in one of six places around home and has to be brought home.

Two places each have the same look. The agent sees the look of its place, whether it holds the thing, and whether it
just searched in vain. Actions: left, right, search, deliver. Delivering elsewhere than at home, or without the thing,
loses the game. Each goal has four hiding places, one for each task.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import LOST, WON, Rules, State

PLACES, HORIZON = 6, 16
LEFT, RIGHT, SEARCH, DELIVER = range(4)
HOME, HELD = 0, -1


def search(number: np.random.Generator) -> Rules:
    """Draw the looks of the places and the hiding places."""
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
