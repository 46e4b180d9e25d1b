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

    Attributes:
        location: of the agent.
        held: the object that the agent carries; None for none.
        contents: per receptacle the objects in it.
        opened: receptacles that are open.
        states: clean, hot, cool, sliced and toggled -> the objects of which it is true.
        object_locations: per object its own locations, apart from its receptacle's: a game file states both, and they
            can differ.
        taken_from: per object the receptacles it was taken out of and not put back into.
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
