"""Traps: a fully observed map of random connections, where a wrong step can end the game.

One of a place's four actions leads to the next place of a ring through all places. Each of the others is a trap with
probability 0.25 and leads to a random place otherwise. One step in ten slips to a random place. Each goal has its own
place; its tasks begin four to seven places before it.
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
