"""Fully observed, with traps: places joined at random; the way is known, a slip leads elsewhere, a trap ends the game.

Of the actions of a place one leads on along a ring through all places; of the other three one in four is a trap, the
rest lead anywhere. One step in ten slips. Each goal has a place of its own; its tasks begin four to seven before.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import LOST, WON, Rules, State

PLACES, HORIZON, SLIP, TRAP = 12, 16, 0.1, 0.25


def traps(number: np.random.Generator) -> Rules:
    """Draw the map and the goals."""
    leads = number.integers(0, PLACES, (PLACES, 4))
    leads[:, 0] = (np.arange(PLACES) + 1) % PLACES
    trap = number.random((PLACES, 4)) < TRAP
    trap[:, 0] = False
    for place in range(PLACES):
        order = number.permutation(4)
        leads[place], trap[place] = leads[place, order], trap[place, order]
    slips_to = number.integers(0, PLACES, (PLACES, 4))
    target = number.choice(PLACES, 4, replace=False)
    starts = tuple((goal, int(target[goal] - distance) % PLACES) for goal in range(4) for distance in (4, 5, 6, 7))

    def come_to(goal: int, place: int) -> State | str:
        return WON if place == target[goal] else (goal, place)

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place = state
        meant = LOST if trap[place, action] else come_to(goal, int(leads[place, action]))
        return (1.0 - SLIP, meant), (SLIP, come_to(goal, int(slips_to[place, action])))

    return Rules(4, HORIZON, starts, step, lambda state: state[1])
