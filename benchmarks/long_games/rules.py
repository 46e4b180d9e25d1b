"""The rules of one instance of a family of games, and the tables of its states.

Shapes: M tasks, S states, A actions, B outcomes of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WON, LOST = "won", "lost"
"""Take the place of a next state where the game ends."""

State = tuple[Any, ...]
"""Its first entry is the goal, which is in the prompt; of the rest the policy sees what `Rules.observe` returns."""


@dataclass(frozen=True, slots=True)
class Rules:
    """One instance: M tasks of one game.

    Attributes:
        actions: A. horizon: steps after which a game is lost.
        starts: the start of each task; tasks may share it.
        step: (state, action) -> the outcomes, pairs of a probability and a next state, `WON` or `LOST`.
        observe: state -> what the agent sees of it.
        observation_noise, memory_noise: standard deviations of the two terms of the start policy's random logits: one
            for each (goal, observation), one for each of its memories.

    Example: `Rules(2, 1, ((0, 0),), lambda state, action: ((1.0, WON if action else LOST),), lambda state: "door")` is
    a door that opens with action 1.
    """

    actions: int
    horizon: int
    starts: tuple[State, ...]
    step: Callable[[State, int], tuple[tuple[float, State | str], ...]]
    observe: Callable[[State], Hashable]
    observation_noise: float = 0.7
    memory_noise: float = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The states that can be reached, as tables; state S is a lost game, S + 1 a won one.

    Attributes:
        next: int64[S, A, B], the state an outcome leads to. share: float64[S, A, B], its probability.
        observation, goal: int64[S]. start: int64[M]. observations: how many different ones there are.

    Example: of the door above, next is [[[1], [2]]]: action 0 loses, action 1 wins.
    """

    next: Ints
    share: Floats
    observation: Ints
    goal: Ints
    start: Ints
    observations: int


def world(rules: Rules) -> World:
    """Enumerate the states that can be reached, and tabulate their transitions."""
    number = {state: n for n, state in enumerate(dict.fromkeys(rules.starts))}
    follows: list[list[tuple[tuple[float, State | str], ...]]] = []
    states = list(number)
    for state in states:  # grows inside the loop
        follows.append([rules.step(state, action) for action in range(rules.actions)])
        for _, after in (outcome for outcomes in follows[-1] for outcome in outcomes):
            if isinstance(after, tuple) and after not in number:
                number[after] = len(number)
                states.append(after)
    ends = {LOST: len(states), WON: len(states) + 1}
    width = max(len(outcomes) for row in follows for outcomes in row)
    after_SAB = np.full((len(states), rules.actions, width), ends[LOST])
    share_SAB = np.zeros(after_SAB.shape)
    for s, row in enumerate(follows):
        for a, outcomes in enumerate(row):
            for b, (share, after) in enumerate(outcomes):
                after_SAB[s, a, b] = number[after] if isinstance(after, tuple) else ends[after]
                share_SAB[s, a, b] = share
    if not np.allclose(share_SAB.sum(axis=2), 1.0):
        raise ValueError("the outcomes of an action must have probabilities that add up to 1")
    seen: dict[Hashable, int] = {}
    observation_S = np.array([seen.setdefault(rules.observe(state), len(seen)) for state in states])
    goal_S = np.array([state[0] for state in states])
    start_M = np.array([number[state] for state in rules.starts])
    return World(after_SAB, share_SAB, observation_S, goal_S, start_M, len(seen))
