"""What changes while a game is played."""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.envs.alfworld.engine.layout import Layout

STATE_PREDICATES = {
    "clean": "isClean",
    "hot": "isHot",
    "cool": "isCool",
    "sliced": "isSliced",
    "toggled": "isToggled",
}


@dataclass(slots=True)
class World:
    """The state of one game, in the numbers of its `Layout`.

    `states` has for each of clean, hot, cool, sliced and toggled the objects of which it is true. An object's own
    location is kept apart from what its receptacle's location is: the files state both, and they can differ.
    `taken_from` has for each object the receptacles it was taken out of and not put back into.
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
        """The state a game begins in."""
        return cls(
            location=agent_location,
            held=None,
            contents=[set(objects) for objects in layout.contents],
            opened={number for number, receptacle in enumerate(layout.receptacles) if receptacle.opened},
            states={state: set(layout.with_property(predicate)) for state, predicate in STATE_PREDICATES.items()},
            object_locations=[set() if item.location is None else {item.location} for item in layout.objects],
            taken_from=[set() for _ in layout.objects],
        )
