"""An expert that solves household tasks from observations, the task sentence and the admissible commands.

It does not read the game's content. It uses general knowledge of households: where kinds of objects are usually found,
and which appliances clean, heat, cool and give light (`hgpo.envs.alfworld.generation.household`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgpo.envs.alfworld.generation.household import APPLIANCES, LAMP_KIND, LAMP_PLACES, OBJECT_KINDS, OPENABLE_KINDS

_VERBS = {"clean": "clean", "heat": "heat", "hot": "heat", "cool": "cool", "cold": "cool"}
_PATTERNS = tuple(
    (task_type, re.compile(pattern))
    for task_type, pattern in (
        ("look_at_obj_in_light", r"look at (?:an? |the )?(?P<object>\w+) under (?:the )?(?P<target>\w+)"),
        ("look_at_obj_in_light", r"examine (?:an? |the )?(?P<object>\w+) with (?:the )?(?P<target>\w+)"),
        ("pick_two_obj_and_place", r"find two (?P<object>\w+) and put them (?:in|on) (?:the )?(?P<target>\w+)"),
        ("pick_two_obj_and_place", r"put two (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
        ("", r"(?P<verb>clean|heat|cool) (?:some|an?) (?P<object>\w+) and put it (?:in|on) (?:the )?(?P<target>\w+)"),
        ("", r"put (?:an?|some) (?P<verb>clean|hot|cool|cold) (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
        ("pick_and_place_simple", r"put (?:an?|some) (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
    )
)


@dataclass(frozen=True, slots=True)
class TaskSentence:
    """The goal in a task sentence.

    Attributes:
        task_type: one of the six task types.
        object_kind: kind of the object, in lower case as in the sentence.
        target_kind: kind of the receptacle or lamp, in lower case as in the sentence.
        verb: clean, heat or cool; "" for other task types.

    Example: "put a hot cup in shelf." is
    `TaskSentence("pick_heat_then_place_in_recep", object_kind="cup", target_kind="shelf", verb="heat")`.
    """

    task_type: str
    object_kind: str
    target_kind: str
    verb: str = ""


def parse_task(sentence: str) -> TaskSentence:
    """The goal of a task sentence; `ValueError` for a sentence of unknown form."""
    for task_type, pattern in _PATTERNS:
        match = pattern.fullmatch(sentence.strip().rstrip(".").lower())
        if match:
            verb = _VERBS[match["verb"]] if not task_type else ""
            kind = task_type or f"pick_{verb}_then_place_in_recep"
            return TaskSentence(kind, match["object"], match["target"], verb)
    raise ValueError(f"task sentence {sentence!r} has none of the known forms, such as 'put a clean apple in fridge.'")


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
    """What the expert knows from observations: places, their contents, the carried object and treatments.

    `contents` has an entry for each receptacle whose contents were seen, `last_visited` is the last receptacle seen.
    Taking or putting down an object sets `last_visited` to None and, without `recall`, clears `contents`.
    """

    def __init__(self, recall: bool) -> None:
        self._recall = recall
        self.places: list[str] = []
        self.contents: dict[str, list[str]] = {}
        self.held: str | None = None
        self.treatments: dict[str, set[str]] = {}
        self.last_visited: str | None = None

    def read(self, observation: str, commands: Iterable[str]) -> None:
        """Update from an observation and the admissible commands."""
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
        """The number of objects of a kind that were seen in a place."""
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


PLACES_OF: dict[str, Mapping[str, int]] = {
    LAMP_KIND.lower(): {kind.lower(): share for kind, share in LAMP_PLACES.items()},
    **{
        name.lower(): {kind.lower(): share for kind, share in properties.places.items()}
        for name, properties in OBJECT_KINDS.items()
    },
}
"""Kind of object -> kinds of places -> how often it is kept there, in per cent; all in lower case."""
APPLIANCE_OF = {verb: kind.lower() for verb, _, kind in APPLIANCES.values()}
_OPENABLE = frozenset(kind.lower() for kind in OPENABLE_KINDS)


class Expert:
    """Searches the receptacles one after the other, opening closed ones, and then does the task.

    It searches first where the wanted kind is usually found; the frequency of a kind of receptacle that must be opened
    is halved. The order of the search depends on the task and the room only, so a policy with a memory of two steps can
    infer the next place from the current one.

    With `recall` it returns to objects seen before and searches unseen places first. Without, it forgets all contents
    when it takes or puts down an object, so a short memory suffices; only tasks that need two searches take longer.
    """

    def __init__(self, recall: bool = True) -> None:
        self._recall = recall

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Start an episode. The task is `info["task"]` or else the last line of the first observation."""
        self._task = parse_task(info["task"] if "task" in info else observation.rpartition("Your task is to: ")[2])
        self._seen = Sightings(self._recall)

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next command. Earlier commands need not be the expert's own. Call it once per step."""
        commands: Sequence[str] = info["admissible_commands"]
        self._seen.read(observation, commands)
        return self._next(frozenset(commands))

    def _next(self, commands: Collection[str]) -> str:
        held, task = self._seen.held, self._task
        if held is None:
            return self._fetch(commands)
        if kind_of(held) != task.object_kind:
            return self._put_away(held, commands)
        if task.verb and task.verb not in self._seen.treatments.get(held, ()):
            return self._treat(held, commands)
        if task.task_type == "look_at_obj_in_light":
            return self._use_lamp(commands)
        target = self._target()
        return self._first_legal([f"move {held} to {target}"], commands) or self._approach(target, commands)

    def _fetch(self, commands: Collection[str]) -> str:
        """Take an object of the wanted kind, except one that is already in the target."""
        kind = self._task.object_kind
        done = self._target() if self._task.task_type == "pick_two_obj_and_place" else None
        for command in sorted(commands):
            thing, separator, place = command.removeprefix("take ").partition(" from ")
            if separator and kind_of(thing) == kind and place != done:
                return command
        return self._search(kind, commands, passing_over=done)

    def _put_away(self, held: str, commands: Collection[str]) -> str:
        """Put down an object of another kind."""
        moves = [command for command in sorted(commands) if command.startswith(f"move {held} to ")]
        return moves[0] if moves else self._visit_next(self._in_order(kind_of(held)), commands)

    def _treat(self, held: str, commands: Collection[str]) -> str:
        verb = self._task.verb
        appliances = [place for place in self._seen.places if kind_of(place) == APPLIANCE_OF[verb]]
        treat = self._first_legal([f"{verb} {held} with {place}" for place in appliances], commands)
        return treat or self._visit_next(appliances, commands)

    def _use_lamp(self, commands: Collection[str]) -> str:
        lamp = self._task.target_kind
        uses = [command for command in sorted(commands) if command.startswith(f"use {lamp} ")]
        return uses[0] if uses else self._search(lamp, commands)

    def _target(self) -> str:
        """The receptacle of the target kind with the most wanted objects, or the first of several; "" without one."""
        kind = self._task.object_kind
        targets = [place for place in self._seen.places if kind_of(place) == self._task.target_kind]
        return max(targets, key=lambda place: self._seen.count(kind, place), default="")

    def _search(self, kind: str, commands: Collection[str], passing_over: str | None = None) -> str:
        """Go to where the kind was seen, or else to the next place of the search."""
        if self._recall:
            for place in self._seen.where(kind):
                if place != passing_over:
                    return self._approach(place, commands)
        order = [place for place in self._in_order(kind) if place != passing_over]
        if self._recall:
            order = [place for place in order if place not in self._seen.contents] or order
        return self._visit_next(order, commands)

    def _visit_next(self, order: Sequence[str], commands: Collection[str]) -> str:
        """Open the last visited place if it is closed and in `order`; else go to the next one."""
        last = self._seen.last_visited
        if last in order:
            if last not in self._seen.contents and f"open {last}" in commands:
                return f"open {last}"
            order = order[order.index(last) + 1 :] or order
        return self._approach(order[0] if order else "", commands)

    def _in_order(self, kind: str) -> list[str]:
        """All places in the order of the search for a kind; impossible ones come last."""
        places, target = self._seen.places, self._task.target_kind
        copies = Counter(kind_of(place) for place in places)
        shares = PLACES_OF.get(kind, {})

        def worth(place: str) -> float:
            name = kind_of(place)
            return shares.get(name, 0) / copies[name] / (2 if name in _OPENABLE else 1)

        places = sorted(places, key=worth, reverse=True)
        # An object that only has to be moved does not start in the target; one to be treated first may.
        return places if self._task.verb else sorted(places, key=lambda place: kind_of(place) == target)

    def _approach(self, place: str, commands: Collection[str]) -> str:
        """Go to a place; if the agent is there already, observe it."""
        choices = [f"go to {place}", f"open {place}", f"examine {place}", "look"]
        return self._first_legal(choices, commands) or choices[-1]

    @staticmethod
    def _first_legal(choices: Sequence[str], commands: Collection[str]) -> str | None:
        return next((choice for choice in choices if choice in commands), None)
