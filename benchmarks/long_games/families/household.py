"""A small household: a thing in one of three cupboards has to be brought to the table.

The agent sees only the effect of its last action: the place it went to, the content of the cupboard it opened, that it
took or put the thing, or "Nothing happens." after any invalid command. A cupboard closes when the agent leaves.
Actions: go to each of the three cupboards, go to the table, open, take, put. A thing put back into a cupboard stays
there. Each goal's thing is in one cupboard twice as often as in the others.
"""

from __future__ import annotations

import numpy as np

from long_games.rules import WON, Rules, State

CUPBOARDS, TABLE, MIDDLE, HORIZON = 3, 3, 4, 15
OPEN, TAKE, PUT = 4, 5, 6
HELD = -1
CAME, OPENED, TOOK, PUT_BACK, NOTHING = range(5)


def household(number: np.random.Generator) -> Rules:
    """Draw the cupboards of each goal's thing; the games begin in the middle of the room."""
    usual = [number.permutation(CUPBOARDS) for _ in range(4)]
    starts = tuple((goal, MIDDLE, int(usual[goal][n]), False, CAME) for goal in range(4) for n in (0, 0, 1, 2))

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place, thing, is_open, _ = state
        after: State | str = (goal, place, thing, is_open, NOTHING)
        if action <= TABLE:
            after = after if action == place else (goal, action, thing, False, CAME)
        elif action == OPEN and place < CUPBOARDS and not is_open:
            after = (goal, place, thing, True, OPENED)
        elif action == TAKE and is_open and thing == place:
            after = (goal, place, HELD, True, TOOK)
        elif action == PUT and thing == HELD and place == TABLE:
            after = WON
        elif action == PUT and thing == HELD and is_open:
            after = (goal, place, place, True, PUT_BACK)
        return ((1.0, after),)

    return Rules(7, HORIZON, starts, step, _seen)


def _seen(state: State) -> tuple[int, ...]:
    _, place, thing, _, event = state
    if event == NOTHING:
        return (NOTHING,)
    return (event, place, int(thing == place)) if event == OPENED else (event, place)
