"""A solver, and the expert that plays by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

from hgpo_sokoban.rules import BOXES, FREE, PLAYERS, after, boxes_of, moved, offsets, player_of, read_map, walks

_MOST_STATES = 4_000
"""States that a search visits at most."""


def solve(start: str) -> list[str] | None:
    """Commands that solve a map: a shortest sequence, or a longer one where the search for it takes too long.

    None if there is no solution, or neither search found one.
    """
    exhausted, commands = _search(start, weight=1)
    return commands if commands is not None or exhausted else _search(start, weight=3)[1]


def _search(start: str, weight: int) -> tuple[bool, list[str] | None]:
    """A* from push to push: whether all states were visited without success, and the commands of a solution.

    A weight above 1 on the estimated rest finds longer solutions sooner.
    """
    pushes = least_pushes(start)
    number = count()
    found: dict[str, list[str]] = {start: []}
    waiting = [(0, next(number), start)]
    done: set[str] = set()
    while waiting:
        _, _, state = heappop(waiting)
        if BOXES[0] not in state:
            return False, found[state]
        if state in done:
            continue
        if len(done) >= _MOST_STATES:
            return False, None
        done.add(state)
        for commands, pushed in _pushes(state):
            known, total = found.get(pushed), len(found[state]) + len(commands)
            rests = [pushes.get(box) for box in boxes_of(pushed)]
            if (known is None or total < len(known)) and None not in rests:
                found[pushed] = [*found[state], *commands]
                heappush(waiting, (total + weight * sum(rest or 0 for rest in rests), next(number), pushed))
    return True, None


def _pushes(state: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every push that the player can walk to: the walk with the push, and the state after it."""
    reached, player = walks(state), player_of(state)
    for box in boxes_of(state):
        for direction, offset in offsets(state).items():
            if box - offset in reached and state[box + offset] in FREE + PLAYERS:
                near = moved(state, player, box - offset)
                pushed = moved(moved(near, box, box + offset), box - offset, box)
                yield (*reached[box - offset], f"push {direction}"), pushed


def least_pushes(state: str) -> dict[int, int]:
    """Cell -> fewest pushes of a box to a goal if it is alone; cells from which it reaches none are missing."""
    found = {cell: 0 for cell, symbol in enumerate(state) if symbol in ".*+"}
    cells = list(found)
    for cell in cells:
        for offset in offsets(state).values():
            if cell + offset not in found and state[cell + offset] != "#" and state[cell + 2 * offset] != "#":
                found[cell + offset] = found[cell] + 1
                cells.append(cell + offset)
    return found


class SokobanExpert:
    """Plays a solution, and searches again after a command that it did not choose; without one it takes any command."""

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Start an episode."""
        self._plan: list[str] | None = []
        self._expected = ""

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next command for the map of the observation."""
        state = read_map(observation)
        if self._plan is not None and state != self._expected:
            self._plan = solve(state)
        if not self._plan:  # none was found; the next search would find none either
            return next(iter(info["admissible_commands"]), "move up")
        command = self._plan.pop(0)
        self._expected = after(state, command)
        return command
