"""The rooms of a household and what stands in them: which receptacles there are, which of them open, what they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room.

    Attributes:
        receptacles: receptacle kind -> how many there are at most.
        anchors: sets of receptacle kinds; a floor plan has all kinds of at least one set, so that the room's own tasks
            are possible in it.

    Example: `ROOMS["kitchen"].receptacles["Cabinet"] == 14`.
    """

    receptacles: Mapping[str, int]
    anchors: tuple[tuple[str, ...], ...]


def _room(receptacles: str, *anchors: str) -> Room:
    counts = (entry.split() for entry in receptacles.split(", "))
    return Room({kind: int(most) for kind, most in counts}, tuple(tuple(anchor.split()) for anchor in anchors))


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
"""Receptacle kinds that no task asks to put something in, although objects are found there."""

ROOMS: Mapping[str, Room] = {
    "kitchen": _room(
        "CounterTop 3, Cabinet 14, Drawer 8, DiningTable 2, Fridge 1, Microwave 1, SinkBasin 1, StoveBurner 4, "
        "CoffeeMachine 1, GarbageCan 1, Shelf 4, SideTable 2",
        "CounterTop SinkBasin Fridge",
        "CounterTop SinkBasin Microwave",
        "CounterTop Fridge Microwave",
        "SinkBasin Fridge Microwave",
    ),
    "bathroom": _room(
        "CounterTop 2, Cabinet 10, Drawer 9, SinkBasin 2, Toilet 1, BathtubBasin 1, GarbageCan 1, HandTowelHolder 2, "
        "ToiletPaperHanger 1, Shelf 5, SideTable 1, Dresser 1",
        "SinkBasin Toilet",
        "SinkBasin CounterTop",
        "Toilet Cabinet",
        "SinkBasin GarbageCan",
    ),
    "bedroom": _room(
        "Bed 2, Desk 2, Drawer 12, Dresser 2, GarbageCan 1, Safe 1, Shelf 8, SideTable 3, ArmChair 2, Cabinet 3",
        "Desk Bed",
        "SideTable Dresser",
        "Desk Drawer",
        "SideTable Shelf",
    ),
    "living": _room(
        "ArmChair 3, CoffeeTable 2, Sofa 2, SideTable 4, Drawer 10, Dresser 1, DiningTable 2, Shelf 8, Cabinet 3, "
        "GarbageCan 1, Ottoman 1",
        "Sofa CoffeeTable",
        "SideTable ArmChair",
        "Sofa SideTable",
        "CoffeeTable Dresser",
    ),
}
