"""Which commands are legal in a given state of a game."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hgpo.envs.alfworld.engine import text
from hgpo.envs.alfworld.engine.layout import CLEANING_KINDS, COOLING_KINDS, HEATING_KINDS, KNIFE_KINDS, Layout
from hgpo.envs.alfworld.engine.world import World

ON_RECEPTACLE = frozenset({"close", "examine receptacle", "go to", "open"})
"""Verbs whose first word names a receptacle; that of all others names an object."""


class Action(NamedTuple):
    """One legal command. `item` and `target` number what it names, -1 where it names nothing.

    Example: `take apple 1 from desk 1` has the apple's number as item and the desk's as target; `open desk 1` has
    the desk's as item.
    """

    verb: str
    item: int
    target: int
    names: tuple[str, ...]
    command: str


class LegalActions:
    """Finds the legal actions of a game's states. Each action is worded once and then kept."""

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
        """The legal actions by command. They depend on the agent's location, what it holds, and what is there."""
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
                # Going to a receptacle within reach would change nothing, and is not legal.
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
        # The published rules mean to allow this for objects within reach too, but misspell a type there.
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
            yield layout.receptacle_names[item] if verb in ON_RECEPTACLE else layout.object_names[item]
        if target >= 0:
            yield layout.object_names[target] if verb == "slice" else layout.receptacle_names[target]
