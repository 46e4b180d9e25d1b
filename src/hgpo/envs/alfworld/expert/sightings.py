"""What a player of household games has learnt by reading: which places there are, what it saw where, what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ARRIVAL = re.compile(r"You arrive at (?P<place>\w+ \d+)\.")
_SIGHT = re.compile(r"(?:On the (?P<on>\w+ \d+)|The (?P<inside>\w+ \d+) is open\. In it), you see (?P<things>[^.]*)\.")
_THING = re.compile(r"\ba (\w+ \d+)")
_TAKING = re.compile(r"You pick up the (?P<thing>\w+ \d+) from the (?P<place>\w+ \d+)\.")
_MOVING = re.compile(r"You move the (?P<thing>\w+ \d+) to the (?P<place>\w+ \d+)\.")
_TREATING = re.compile(r"You (?P<verb>clean|heat|cool) the (?P<thing>\w+ \d+) using")
_UNDOES = {"heat": "cool", "cool": "heat"}


def kind_of(name: str) -> str:
    """`"apple"` for `"apple 2"`."""
    return name.rpartition(" ")[0]


class Sightings:
    """Everything is taken from texts and legal commands; nothing is known of places not yet looked into.

    `contents` has an entry for each receptacle that was seen open, `last_visited` is the receptacle that was
    last looked at since something was taken or put down. Without `recall` what was seen is forgotten then too.
    """

    def __init__(self, recall: bool) -> None:
        self._recall = recall
        self.places: list[str] = []
        self.contents: dict[str, list[str]] = {}
        self.held: str | None = None
        self.treatments: dict[str, set[str]] = {}
        self.last_visited: str | None = None

    def read(self, observation: str, commands: Iterable[str]) -> None:
        """Take in the answer to a command and what can be done next."""
        self._add_places(command[len("go to ") :] for command in commands if command.startswith("go to "))
        if match := _ARRIVAL.match(observation):
            self._add_places([match["place"]])
            self.last_visited = match["place"]
        if match := _SIGHT.search(observation):
            place = match["on"] or match["inside"]
            self.contents[place] = _THING.findall(match["things"])
            self.last_visited = place
        if match := _TAKING.match(observation):
            self._change_hands(match["thing"], taken_from=match["place"])
        if match := _MOVING.match(observation):
            self._change_hands(match["thing"], moved_to=match["place"])
        if match := _TREATING.match(observation):
            treatments = self.treatments.setdefault(match["thing"], set())
            treatments.add(match["verb"])
            treatments.discard(_UNDOES.get(match["verb"], ""))

    def where(self, kind: str) -> list[str]:
        """The places where something of a kind was seen."""
        return [place for place, things in self.contents.items() if self.count(kind, place)]

    def count(self, kind: str, place: str) -> int:
        """How many of a kind were seen in a place."""
        return sum(kind_of(thing) == kind for thing in self.contents.get(place, ()))

    def _add_places(self, names: Iterable[str]) -> None:
        new = [name for name in names if name not in self.places]
        if new:
            self.places = sorted([*self.places, *new], key=lambda name: (kind_of(name), int(name.rpartition(" ")[2])))

    def _change_hands(self, thing: str, taken_from: str | None = None, moved_to: str | None = None) -> None:
        self.held = thing if taken_from else None
        self.last_visited = None
        if not self._recall:
            self.contents.clear()
        if taken_from and thing in self.contents.get(taken_from, ()):
            self.contents[taken_from].remove(thing)
        if moved_to and self._recall:
            self.contents.setdefault(moved_to, []).append(thing)
