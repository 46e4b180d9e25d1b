"""The five families by name, and their instances by seed, with a start policy. A family draws the rules of an instance.

Instances for choosing settings and for reporting have different seeds: numbers below and from `FIRST_REPORTED` on.

Shapes: N nodes, A actions, K keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from long_games.exact import action_shares, success, values
from long_games.memory import Game, game
from long_games.rules import LOST, WON, Floats, Rules, State

FIRST_REPORTED = 1000
START_SUCCESS = 0.3
_DISCOUNT = 0.9
"""Discount of a step in the value from which the tilt is computed."""
_STRONGEST_TILT = 60.0
_HALVINGS = 25
_TRIES = 50


def traps(number: np.random.Generator) -> Rules:
    """Traps: a fully observed map of random connections, where a wrong step can end the game.

    One of a place's four actions leads to the next place of a ring through all places. Each of the others is a trap
    with probability 0.25 and leads to a random place otherwise. One step in ten slips to a random place. Each goal has
    its own place; its tasks begin four to seven places before it.
    """
    places, horizon, slip = 12, 16, 0.1
    leads = number.integers(0, places, (places, 4))
    leads[:, 0] = (np.arange(places) + 1) % places
    trap = number.random((places, 4)) < 0.25
    trap[:, 0] = False
    for place in range(places):
        order = number.permutation(4)
        leads[place], trap[place] = leads[place, order], trap[place, order]
    slips_to = number.integers(0, places, (places, 4))
    target = number.choice(places, 4, replace=False)
    starts = tuple((goal, int(target[goal] - distance) % places) for goal in range(4) for distance in (4, 5, 6, 7))

    def come_to(goal: int, place: int) -> State | str:
        return WON if place == target[goal] else (goal, place)

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place = state
        meant = LOST if trap[place, action] else come_to(goal, int(leads[place, action]))
        return (1.0 - slip, meant), (slip, come_to(goal, int(slips_to[place, action])))

    return Rules(4, horizon, starts, step, lambda state: state[1])


def search(number: np.random.Generator) -> Rules:
    """Search among aliased places: a thing is hidden in one of six places around home and has to be brought home.

    Two places each have the same look. The agent sees the look of its place, whether it holds the thing, and whether it
    just searched in vain. Actions: left, right, search, deliver. Delivering elsewhere than at home, or without the
    thing, loses the game. Each goal has four hiding places, one for each task.
    """
    places, horizon, home, held = 6, 16, 0, -1
    left, right, look_for = range(3)
    look = [-1, *number.permutation(np.repeat(np.arange(3), 2)).tolist()]  # place 0 is home
    starts = tuple(
        (goal, home, int(place), False)
        for goal in range(4)
        for place in number.choice(np.arange(1, places + 1), 4, replace=False)
    )

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place, hidden, _ = state
        after: State | str
        if action in (left, right):
            after = (goal, (place + (1 if action == right else -1)) % (places + 1), hidden, False)
        elif action == look_for:
            after = (goal, place, held, False) if place == hidden else (goal, place, hidden, True)
        else:
            after = WON if place == home and hidden == held else LOST
        return ((1.0, after),)

    return Rules(4, horizon, starts, step, lambda state: (look[state[1]], state[2] == held, state[3]))


def policy_only(number: np.random.Generator) -> Rules:
    """History changes only the policy: fully observed layers of rooms, whose future does not depend on the past.

    An action leads to a room of the next layer, with probability 0.2 to another one; room and action in the last layer
    determine the probability to win. The start policy depends strongly on the last two steps, so returns differ by
    history, but values do not: groups by history are smaller without a benefit.
    """
    layers, rooms, actions, astray = 6, 3, 3, 0.2
    meant = number.integers(0, rooms, (4, layers, rooms, actions))
    other = (meant + number.integers(1, rooms, meant.shape)) % rooms
    worth = np.stack([number.permutation((0.0, 0.05, 0.75)) for _ in range(4)])
    gain = number.permuted(np.tile([0.0, 0.05, 0.15], (4, rooms, 1)), axis=2)
    starts = tuple((goal, 0, room) for goal in range(4) for room in (0, 1, 2, int(number.integers(rooms))))

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, layer, room = state
        if layer == layers - 1:
            chance = float(worth[goal, room] + gain[goal, room, action])
            return (chance, WON), (1.0 - chance, LOST)
        here = (goal, layer, room, action)
        return (1.0 - astray, (goal, layer + 1, int(meant[here]))), (astray, (goal, layer + 1, int(other[here])))

    return Rules(actions, layers, starts, step, lambda state: state[1:], observation_noise=0.3, memory_noise=1.5)


def loops(number: np.random.Generator) -> Rules:
    """Long loops: two keys have to be found in order on a ring of places, and shortcuts lead back.

    The agent sees its place and its number of keys. One action leads to the next place of the ring, two lead to random
    places (their order differs between places), and one uses the place: it takes the next key or, with both keys, opens
    the exit. Thirty steps are enough for three rounds. Every task is a goal of its own.
    """
    goals, places, all_keys, horizon, use = 16, 8, 2, 30, 3
    leads = np.stack([(np.arange(places) + 1) % places, *number.integers(0, places, (2, places))], axis=1)
    leads = number.permuted(leads, axis=1)
    wanted = np.stack([number.choice(places, all_keys + 1, replace=False) for _ in range(goals)])
    starts = tuple((goal, int(place), 0) for goal, place in enumerate(number.integers(0, places, goals)))

    def step(state: State, action: int) -> tuple[tuple[float, State | str], ...]:
        goal, place, keys = state
        if action != use:
            return ((1.0, (goal, int(leads[place, action]), keys)),)
        if place != wanted[goal, keys]:
            return ((1.0, state),)
        return ((1.0, WON if keys == all_keys else (goal, place, keys + 1)),)

    return Rules(4, horizon, starts, step, lambda state: state[1:])


CUPBOARDS, TABLE, MIDDLE = 3, 3, 4
OPEN, TAKE, PUT = 4, 5, 6
HELD = -1
CAME, OPENED, TOOK, PUT_BACK, NOTHING = range(5)
"""Places, actions and events of the household."""


def household(number: np.random.Generator) -> Rules:
    """A small household: a thing in one of three cupboards has to be brought to the table.

    The agent sees only the effect of its last action: the place it went to, the content of the cupboard it opened, that
    it took or put the thing, or "Nothing happens." after any invalid command. A cupboard closes when the agent leaves.
    Actions: go to each of the three cupboards, go to the table, open, take, put. A thing put back into a cupboard stays
    there. Each goal's thing is in one cupboard twice as often as in the others. Games begin in the middle of the room.
    """
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

    return Rules(actions=7, horizon=15, starts=starts, step=step, observe=_seen)


def _seen(state: State) -> tuple[int, ...]:
    _, place, thing, _, event = state
    if event == NOTHING:
        return (NOTHING,)
    return (event, place, int(thing == place)) if event == OPENED else (event, place)


FAMILIES: dict[str, Callable[[np.random.Generator], Rules]] = {
    "traps": traps,
    "search": search,
    "policy only": policy_only,
    "loops": loops,
    "household": household,
}


def generator(family: str, instance: int, *purpose: int) -> np.random.Generator:
    """Random numbers for one purpose of one instance, independent of other instances and purposes."""
    return np.random.default_rng((list(FAMILIES).index(family), instance, *purpose))


def instance(family: str, number: int) -> tuple[Game, Floats]:
    """The game and its start logits; draws that no start policy fits (`NoSuchStart`) are drawn again.

    Raises:
        ValueError: an unknown family, or no start after 50 draws.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; there are {', '.join(FAMILIES)}")
    draw = partial(generator, family, number)
    for attempt in range(_TRIES):
        drawn = game(FAMILIES[family](draw(0, attempt)))
        try:
            return drawn, start_logits(drawn, draw(1, attempt))
        except NoSuchStart:
            continue
    raise ValueError(f"no start policy wins three games in ten in {_TRIES} draws of {family}, instance {number}")


class NoSuchStart(ValueError):
    """No multiple of the tilt gives this instance's policy a success of 30 %."""


def start_logits(game: Game, number: np.random.Generator) -> Floats:
    """The start policy: random logits plus a multiple of a tilt towards better actions, float64[K, A].

    Its exact success is `START_SUCCESS`. It resembles a warm-started language model, which knows something of the task,
    is better in some situations than in others, and depends on the history. The tilt is computed from the hidden state;
    a key has the mean over its nodes.

    Raises:
        NoSuchStart: the success is higher without the tilt, or lower with the strongest.
    """
    actions = game.rules.actions
    by_sight = number.normal(0.0, game.rules.observation_noise, (int(game.sight.max()) + 1, actions))
    noise_KA = by_sight[game.sight] + number.normal(0.0, game.rules.memory_noise, (game.keys, actions))
    tilt_KA = _tilt(game)

    def wins(strength: float) -> float:
        return success(game, values(game, action_shares(noise_KA + strength * tilt_KA)))

    low, high = 0.0, 1.0
    if wins(low) > START_SUCCESS:
        raise NoSuchStart(f"the noise alone wins {wins(low):.2f}")
    while wins(high) < START_SUCCESS:
        low, high = high, 2.0 * high
        if high > _STRONGEST_TILT:
            raise NoSuchStart(f"a tilt of {low:g} wins only {wins(low):.2f}")
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if wins(middle) < START_SUCCESS else (low, middle)
    return noise_KA + high * tilt_KA


def _tilt(game: Game) -> Floats:
    """Value of each action minus that of the best one, divided by the best one's, -1 to 0, float64[K, A]."""
    world = game.world
    value_S = np.zeros(len(world.goal) + 2)
    value_S[-1] = 1.0
    for _ in range(game.rules.horizon):
        q_SA = _DISCOUNT * (value_S[world.next] * world.share).sum(axis=2)
        value_S[:-2] = q_SA.max(axis=1)
    best_S = q_SA.max(axis=1, keepdims=True)
    lack_SA = (q_SA - best_S) / np.maximum(best_S, 1e-12)
    cell_NA = game.key[:, None] * game.rules.actions + np.arange(game.rules.actions)
    total = np.bincount(cell_NA.ravel(), lack_SA[game.state].ravel(), minlength=game.keys * game.rules.actions)
    mean: Floats = total.reshape(game.keys, -1) / np.bincount(game.key, minlength=game.keys)[:, None]
    return mean
