"""The state of a game and its legal commands.

`Layout` numbers the fixed parts of a game, `World` is the state, and `LegalActions` lists the commands of a state.
Objects and receptacles are numbered in the order of their ids in lower case. The simulator lists things in this order,
so a listing only sorts numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hgpo.envs.alfworld import text
from hgpo.envs.alfworld.game import Game, GameObject, Receptacle

STATE_PREDICATES = {
    "clean": "isClean",
    "hot": "isHot",
    "cool": "isCool",
    "sliced": "isSliced",
    "toggled": "isToggled",
}


@dataclass(slots=True)
class World:
    """The state of one game; integers are numbers of its `Layout`.

    Attributes:
        location: id of the agent's location.
        held: the carried object, or None.
        contents: per receptacle, the objects in it.
        opened: the open receptacles.
        states: clean, hot, cool, sliced and toggled -> the objects in that state.
        object_locations: per object, ids of its own locations; a game file states them in addition to the location of
            the object's receptacle, and the two can differ.
        taken_from: per object, the receptacles it was taken from and not put back into.
    """

    location: str
    held: int | None
    contents: list[set[int]]
    opened: set[int]
    states: dict[str, set[int]]
    object_locations: list[set[str]]
    taken_from: list[set[int]]

    @classmethod
    def at_start(cls, layout: Layout, agent_location: str) -> World:
        """The initial state."""
        return cls(
            location=agent_location,
            held=None,
            contents=[set(objects) for objects in layout.contents],
            opened={number for number, receptacle in enumerate(layout.receptacles) if receptacle.opened},
            states={state: set(layout.with_property(predicate)) for state, predicate in STATE_PREDICATES.items()},
            object_locations=[set() if item.location is None else {item.location} for item in layout.objects],
            taken_from=[set() for _ in layout.objects],
        )


CLEANING_KINDS = frozenset({"Sink", "SinkBasin"})
HEATING_KINDS = frozenset({"Microwave"})
COOLING_KINDS = frozenset({"Fridge"})
KNIFE_KINDS = frozenset({"Knife", "ButterKnife"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The objects and receptacles of a game by number: object 3 is `objects[3]`.

    Attributes:
        receptacles: sorted by id.
        objects: sorted by id.
        receptacles_at: location -> numbers of its receptacles.
        openable: numbers of the receptacles that open.
        contents: per receptacle the numbers of the objects in it at the start.
        inside: number of a container object -> the objects in it; no command takes them out.
    """

    receptacles: tuple[Receptacle, ...]
    objects: tuple[GameObject, ...]
    receptacles_at: dict[str, tuple[int, ...]]
    openable: frozenset[int]
    contents: tuple[frozenset[int], ...]
    inside: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, game: Game) -> Layout:
        """Number the things of a game; `ValueError` for an unknown id, or a name or id that two things share."""
        receptacles = tuple(sorted(game.receptacles, key=_listing_key))
        objects = tuple(sorted(game.objects, key=_listing_key))
        things: list[Receptacle | GameObject] = [*receptacles, *objects]
        _check_unique(game.name, "id", [thing.id for thing in things])
        _check_unique(game.name, "name", [thing.name for thing in things])
        receptacle_number = {receptacle.id: number for number, receptacle in enumerate(receptacles)}
        object_number = {item.id: number for number, item in enumerate(objects)}
        contents: list[set[int]] = [set() for _ in receptacles]
        inside: defaultdict[int, list[int]] = defaultdict(list)
        for number, item in enumerate(objects):
            for holder in item.receptacles:
                contents[_lookup(receptacle_number, holder, item, game)].add(number)
            for holder in item.inside:
                inside[_lookup(object_number, holder, item, game)].append(number)
        return cls(
            receptacles=receptacles,
            objects=objects,
            receptacles_at=_by_location(receptacles),
            openable=frozenset(number for number, receptacle in enumerate(receptacles) if receptacle.openable),
            contents=tuple(map(frozenset, contents)),
            inside={holder: tuple(numbers) for holder, numbers in inside.items()},
        )

    def with_property(self, name: str) -> frozenset[int]:
        """Numbers of the objects with a PDDL predicate such as `"cleanable"` at the start."""
        return frozenset(number for number, item in enumerate(self.objects) if name in item.properties)

    def objects_of(self, kinds: Iterable[str]) -> frozenset[int]:
        """Numbers of the objects of any of these kinds."""
        return frozenset(number for number, item in enumerate(self.objects) if item.kind in kinds)

    def receptacles_of(self, kinds: Iterable[str]) -> frozenset[int]:
        """Numbers of the receptacles of any of these kinds."""
        return frozenset(number for number, place in enumerate(self.receptacles) if place.kind in kinds)


def _listing_key(thing: Receptacle | GameObject) -> str:
    return thing.id.lower()


def state_key(layout: Layout, world: World) -> str:
    """Where the agent is, what it carries, and everything that differs from the start of the game.

    Two states of one game have the same key exactly if they are equal.

    Example: "at sinkbasin 1 ; carries mug 2 ; opened cabinet 1 ; mug 2 clean ; mug 2 left countertop 1".
    """
    return " ; ".join(_parts(layout, world))


def _parts(layout: Layout, world: World) -> Iterator[str]:
    here = layout.receptacles_at.get(world.location)
    yield f"at {', '.join(_names(layout.receptacles, here)) if here else world.location}"
    if world.held is not None:
        yield f"carries {layout.objects[world.held].name}"
    opened_before = {number for number, receptacle in enumerate(layout.receptacles) if receptacle.opened}
    for word, numbers in (("opened", world.opened - opened_before), ("closed", opened_before - world.opened)):
        if numbers:
            yield f"{word} {', '.join(_names(layout.receptacles, numbers))}"
    for state, predicate in STATE_PREDICATES.items():
        had, has = layout.with_property(predicate), world.states[state]
        for word, items in ((state, has - had), (f"not {state}", had - has)):
            if items:
                yield f"{', '.join(_names(layout.objects, items))} {word}"
    for place, (at_start, now) in enumerate(zip(layout.contents, world.contents, strict=True)):
        if now != at_start:
            yield f"{layout.receptacles[place].name} holds {', '.join(_names(layout.objects, now)) or 'nothing'}"
    for item, sources in enumerate(world.taken_from):
        # What `look` lists beside a receptacle depends on where an object was before.
        if sources:
            yield f"{layout.objects[item].name} left {', '.join(_names(layout.receptacles, sources))}"
    for item, (thing, places) in enumerate(zip(layout.objects, world.object_locations, strict=True)):
        if places != (set() if thing.location is None else {thing.location}):
            yield f"{layout.objects[item].name} near {', '.join(sorted(places)) or 'nothing'}"


def _names(things: Sequence[Receptacle | GameObject], numbers: Iterable[int]) -> list[str]:
    return [things[number].name for number in sorted(numbers)]


def _by_location(receptacles: tuple[Receptacle, ...]) -> dict[str, tuple[int, ...]]:
    result: defaultdict[str, list[int]] = defaultdict(list)
    for number, receptacle in enumerate(receptacles):
        result[receptacle.location].append(number)
    return {location: tuple(numbers) for location, numbers in result.items()}


def _check_unique(game_name: str, what: str, values: list[str]) -> None:
    if len(set(values)) != len(values):
        repeated = Counter(values).most_common(1)[0][0]
        raise ValueError(f"{game_name}: the {what} {repeated!r} is used twice; make it unique")


def _lookup(numbers: dict[str, int], identifier: str, item: GameObject, game: Game) -> int:
    if identifier not in numbers:
        raise ValueError(
            f"{game.name}: {item.id!r} is located in {identifier!r}, which is not in the game; "
            "add it to the game or remove the object"
        )
    return numbers[identifier]


ON_RECEPTACLE = frozenset({"close", "examine receptacle", "go to", "open"})
"""Verbs whose first argument is a receptacle. The first argument of any other verb, if it has one, is an object."""


class Action(NamedTuple):
    """One legal command. `item` and `target` are the numbers of its arguments, -1 for a missing one.

    Example: `take apple 1 from desk 1` has the apple's number as item and the desk's as target; `open desk 1` has
    the desk's as item.
    """

    verb: str
    item: int
    target: int
    names: tuple[str, ...]
    command: str


class LegalActions:
    """Finds the legal actions of a game's states. Actions are cached."""

    def __init__(self, layout: Layout, can_contain: frozenset[tuple[str, str]]) -> None:
        self._layout = layout
        self._can_contain = can_contain
        self._openable = layout.openable
        self._pickupable = layout.with_property("pickupable")
        self._toggleable = layout.with_property("toggleable")
        self._sliceable = layout.with_property("sliceable")
        self._knives = layout.objects_of(KNIFE_KINDS)
        self._treatments = (
            ("clean", layout.receptacles_of(CLEANING_KINDS), layout.with_property("cleanable")),
            ("heat", layout.receptacles_of(HEATING_KINDS), layout.with_property("heatable")),
            ("cool", layout.receptacles_of(COOLING_KINDS), layout.with_property("coolable")),
        )
        self._worded: dict[tuple[str, int, int], Action] = {}
        self._always: dict[str, dict[str, Action]] = {}

    def find(self, world: World) -> dict[str, Action]:
        """The legal actions of a state, by command."""
        actions = self._always_legal_at(world.location).copy()
        for place in self._layout.receptacles_at.get(world.location, ()):
            actions.update((action.command, action) for action in self._with_receptacle(world, place))
        if world.held is not None:
            actions.update((action.command, action) for action in self._with_held_object(world, world.held))
        return actions

    def _always_legal_at(self, location: str) -> dict[str, Action]:
        actions = self._always.get(location)
        if actions is None:
            found = [self._word(verb) for verb in ("help", "inventory", "look")]
            for place, receptacle in enumerate(self._layout.receptacles):
                # Going to a receptacle at the agent's location would change nothing, and is not legal.
                if receptacle.location != location:
                    found.append(self._word("go to", place))
            actions = self._always[location] = {action.command: action for action in found}
        return actions

    def _with_receptacle(self, world: World, place: int) -> Iterable[Action]:
        yield self._word("examine receptacle", place)
        openable = place in self._openable
        if openable:
            yield self._word("close" if place in world.opened else "open", place)
        within_reach = not openable or place in world.opened
        for item in world.contents[place]:
            if within_reach and world.held is None and item in self._pickupable:
                yield self._word("take", item, place)
            if item in self._toggleable:  # a lamp can be used inside a closed receptacle too
                yield self._word("use", item)
        if world.held is not None:
            yield from self._with_held_object_at(world.held, place, within_reach)

    def _with_held_object_at(self, held: int, place: int, within_reach: bool) -> Iterable[Action]:
        kinds = (self._layout.receptacles[place].kind, self._layout.objects[held].kind)
        if within_reach and kinds in self._can_contain:
            yield self._word("move", held, place)
        for verb, appliances, suitable in self._treatments:
            if place in appliances and held in suitable:
                yield self._word(verb, held, place)

    def _with_held_object(self, world: World, held: int) -> Iterable[Action]:
        # The published rules intend to allow `examine` for objects in reach too, but misspell a type there.
        yield self._word("examine object", held)
        if held in self._knives:
            for item in self._sliceable:
                if world.location in world.object_locations[item]:
                    yield self._word("slice", item, held)

    def _word(self, verb: str, item: int = -1, target: int = -1) -> Action:
        action = self._worded.get((verb, item, target))
        if action is None:
            names = tuple(self._names(verb, item, target))
            command = text.COMMAND_TEMPLATES[verb].format(*names)
            action = self._worded[verb, item, target] = Action(verb, item, target, names, command)
        return action

    def _names(self, verb: str, item: int, target: int) -> Iterable[str]:
        layout = self._layout
        if item >= 0:
            yield layout.receptacles[item].name if verb in ON_RECEPTACLE else layout.objects[item].name
        if target >= 0:
            yield layout.objects[target].name if verb == "slice" else layout.receptacles[target].name
