"""Kinds of objects and rooms, whose tables are in `household.toml`, and appliances."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of portable object.

    Attributes:
        rooms: kinds of rooms in which it is found.
        properties: its PDDL predicates.
        places: receptacle kinds that can contain it -> how often it is found there (per cent, at least 1).
    """

    rooms: tuple[str, ...]
    properties: frozenset[str]
    places: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room.

    Attributes:
        receptacles: receptacle kind -> most receptacles of it.
        anchors: sets of receptacle kinds; a floor plan has all kinds of at least one set, so that the room's typical
            tasks are possible.
    """

    receptacles: Mapping[str, int]
    anchors: tuple[tuple[str, ...], ...]


_TABLES = tomllib.loads((files(__package__) / "household.toml").read_text(encoding="utf-8"))

OBJECT_KINDS: Mapping[str, ObjectKind] = {
    name: ObjectKind(tuple(table["rooms"]), frozenset(["pickupable", *table.get("properties", ())]), table["places"])
    for name, table in _TABLES["objects"].items()
}
"""The order matters: random draws of generated games refer to positions in it."""

ROOMS: Mapping[str, Room] = {
    name: Room(table["receptacles"], tuple(map(tuple, table["anchors"]))) for name, table in _TABLES["rooms"].items()
}

OPENABLE_KINDS = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})

APPLIANCES = {
    "pick_clean_then_place_in_recep": ("clean", "cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heat", "heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("cool", "coolable", "Fridge"),
}
"""Task type -> (the verb, the property that an object needs for it, the receptacle kind that does it)."""

LAMP_KIND = "DeskLamp"
LAMP_PLACES: Mapping[str, int] = {"SideTable": 40, "Desk": 29, "Dresser": 21, "Shelf": 9, "CoffeeTable": 1}

NEVER_TARGETS = frozenset({"SinkBasin", "BathtubBasin"})
"""Receptacle kinds that are no task's target, although objects are found there."""
