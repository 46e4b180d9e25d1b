"""Tables of households: kinds of objects with their usual places, rooms with their receptacles, and appliances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


def _object(rooms: str, properties: str, places: str) -> ObjectKind:
    shares = (place.split() for place in places.split(", "))
    return ObjectKind(
        rooms=tuple(rooms.split()),
        properties=frozenset(["pickupable", *properties.split()]),
        places={kind: int(share) for kind, share in shares},
    )


OBJECT_KINDS: Mapping[str, ObjectKind] = {
    "AlarmClock": _object("bedroom", "", "Desk 35, Shelf 21, SideTable 19, Dresser 17, DiningTable 7, CounterTop 1"),
    "Apple": _object(
        "kitchen",
        "cleanable coolable heatable sliceable",
        "CounterTop 24, Fridge 24, DiningTable 15, GarbageCan 13, Microwave 13, SinkBasin 9, SideTable 2",
    ),
    "Book": _object(
        "kitchen bedroom living",
        "",
        "Bed 36, Desk 14, CounterTop 10, Drawer 10, Dresser 7, DiningTable 5, Cabinet 4, SideTable 4, ArmChair 3, "
        "CoffeeTable 3, Sofa 3, Shelf 2, Ottoman 1",
    ),
    "Bowl": _object(
        "kitchen bedroom living",
        "cleanable coolable isReceptacleObject",
        "Cabinet 30, CounterTop 18, Fridge 17, DiningTable 15, Desk 6, Shelf 6, Microwave 3, SinkBasin 3, Dresser 2, "
        "CoffeeTable 1, SideTable 1",
    ),
    "Box": _object(
        "bedroom living",
        "isReceptacleObject",
        "DiningTable 23, Sofa 22, CoffeeTable 21, Shelf 8, SideTable 7, Desk 6, ArmChair 4, Cabinet 4, Dresser 3, "
        "Ottoman 1",
    ),
    "Bread": _object(
        "kitchen",
        "coolable heatable sliceable",
        "CounterTop 55, DiningTable 31, Fridge 12, GarbageCan 1, Microwave 1, SideTable 1",
    ),
    "ButterKnife": _object("kitchen", "cleanable", "CounterTop 58, DiningTable 26, Drawer 8, SinkBasin 5, SideTable 1"),
    "CD": _object(
        "bedroom",
        "",
        "Drawer 28, Desk 19, Dresser 14, SideTable 13, Shelf 9, GarbageCan 8, DiningTable 6, Cabinet 2, CounterTop 1, "
        "Safe 1",
    ),
    "Candle": _object(
        "bathroom",
        "",
        "Toilet 28, CounterTop 27, Cabinet 14, Drawer 14, Shelf 6, SideTable 6, CoffeeTable 2, DiningTable 2, Dresser "
        "1",
    ),
    "CellPhone": _object(
        "kitchen bedroom living",
        "",
        "Bed 22, Drawer 20, Desk 13, Dresser 9, SideTable 9, CounterTop 7, DiningTable 6, Shelf 6, ArmChair 3, Safe "
        "2, Sofa 2, CoffeeTable 1, Ottoman 1",
    ),
    "Cloth": _object(
        "bathroom bedroom",
        "cleanable",
        "BathtubBasin 29, Cabinet 19, CounterTop 17, Drawer 16, SinkBasin 8, Shelf 5, Toilet 5, Dresser 2, ArmChair "
        "1, Desk 1, DiningTable 1, GarbageCan 1, SideTable 1",
    ),
    "CreditCard": _object(
        "bedroom living",
        "",
        "Drawer 24, Shelf 13, SideTable 12, Desk 9, Dresser 9, ArmChair 8, Sofa 8, CoffeeTable 6, CounterTop 5, "
        "DiningTable 5, Ottoman 1, Safe 1",
    ),
    "Cup": _object(
        "kitchen",
        "cleanable coolable heatable isReceptacleObject",
        "Cabinet 24, CounterTop 21, Fridge 20, DiningTable 14, SinkBasin 9, Microwave 8, Shelf 2, SideTable 2",
    ),
    "DishSponge": _object(
        "kitchen bathroom",
        "cleanable",
        "CounterTop 25, Cabinet 22, Drawer 21, DiningTable 12, SinkBasin 8, GarbageCan 5, Shelf 3, BathtubBasin 2, "
        "SideTable 1, Toilet 1",
    ),
    "Egg": _object(
        "kitchen",
        "cleanable coolable heatable sliceable",
        "Fridge 25, CounterTop 24, GarbageCan 13, DiningTable 12, Microwave 12, SinkBasin 12, SideTable 2",
    ),
    "Fork": _object("kitchen", "cleanable", "CounterTop 44, DiningTable 24, Drawer 22, SinkBasin 9, SideTable 2"),
    "Glassbottle": _object(
        "kitchen",
        "",
        "Cabinet 33, CounterTop 29, DiningTable 15, Fridge 10, SinkBasin 10, Shelf 4, Microwave 1",
    ),
    "HandTowel": _object(
        "bathroom",
        "",
        "HandTowelHolder 89, CounterTop 6, Toilet 3, BathtubBasin 1, Cabinet 1, Drawer 1, GarbageCan 1, Shelf 1, "
        "SideTable 1, SinkBasin 1",
    ),
    "Kettle": _object(
        "kitchen",
        "cleanable",
        "StoveBurner 41, Cabinet 25, CounterTop 25, DiningTable 7, SinkBasin 2, Shelf 1, SideTable 1",
    ),
    "KeyChain": _object(
        "bedroom living",
        "",
        "Drawer 23, SideTable 16, Desk 12, Shelf 12, Dresser 11, CoffeeTable 7, ArmChair 6, DiningTable 5, Sofa 5, "
        "Safe 3, CounterTop 1, Ottoman 1",
    ),
    "Knife": _object("kitchen", "cleanable", "CounterTop 48, DiningTable 25, Drawer 21, SinkBasin 5, SideTable 1"),
    "Ladle": _object("kitchen", "cleanable", "CounterTop 40, Cabinet 25, Drawer 18, DiningTable 14, SinkBasin 2"),
    "Laptop": _object(
        "bedroom living",
        "",
        "Bed 47, Desk 13, Sofa 10, CoffeeTable 9, DiningTable 9, Dresser 5, ArmChair 3, SideTable 3, CounterTop 1, "
        "Ottoman 1",
    ),
    "Lettuce": _object(
        "kitchen",
        "cleanable coolable sliceable",
        "CounterTop 41, DiningTable 28, Fridge 23, SinkBasin 5, SideTable 2, GarbageCan 1",
    ),
    "Mug": _object(
        "kitchen bedroom",
        "cleanable coolable heatable isReceptacleObject",
        "CounterTop 23, CoffeeMachine 17, Cabinet 14, Fridge 11, DiningTable 10, Microwave 6, Desk 5, SinkBasin 5, "
        "Shelf 4, SideTable 3, Dresser 2",
    ),
    "Newspaper": _object(
        "living",
        "",
        "Sofa 23, CoffeeTable 18, DiningTable 15, SideTable 12, ArmChair 10, Shelf 10, Dresser 7, Drawer 2, "
        "GarbageCan 2, Ottoman 2, Cabinet 1",
    ),
    "Pan": _object(
        "kitchen",
        "cleanable coolable isReceptacleObject",
        "StoveBurner 51, CounterTop 33, Cabinet 7, DiningTable 5, Fridge 4, SideTable 1, SinkBasin 1",
    ),
    "Pen": _object(
        "bedroom living",
        "",
        "Desk 22, Drawer 17, Dresser 15, SideTable 14, Shelf 13, DiningTable 9, CounterTop 5, CoffeeTable 3, "
        "GarbageCan 3",
    ),
    "Pencil": _object(
        "bedroom living",
        "",
        "Desk 20, Drawer 20, SideTable 17, Shelf 14, Dresser 10, DiningTable 7, GarbageCan 6, CounterTop 4, "
        "CoffeeTable 3",
    ),
    "PepperShaker": _object(
        "kitchen",
        "",
        "Cabinet 33, CounterTop 30, DiningTable 17, Drawer 15, Shelf 3, SideTable 2",
    ),
    "Pillow": _object("bedroom living", "", "Bed 68, Sofa 24, ArmChair 7, Ottoman 1"),
    "Plate": _object(
        "kitchen living",
        "cleanable coolable heatable isReceptacleObject",
        "Cabinet 36, CounterTop 27, DiningTable 19, Fridge 8, Shelf 3, CoffeeTable 2, SinkBasin 2, Dresser 1, "
        "Microwave 1, SideTable 1",
    ),
    "Pot": _object(
        "kitchen",
        "cleanable coolable isReceptacleObject",
        "StoveBurner 73, CounterTop 14, Cabinet 4, DiningTable 4, Fridge 4, Shelf 1, SideTable 1, SinkBasin 1",
    ),
    "Potato": _object(
        "kitchen",
        "cleanable coolable heatable sliceable",
        "CounterTop 28, Fridge 26, DiningTable 16, Microwave 11, SinkBasin 11, GarbageCan 7, SideTable 2",
    ),
    "RemoteControl": _object(
        "bedroom living",
        "",
        "CoffeeTable 21, Sofa 18, SideTable 13, ArmChair 12, DiningTable 9, Drawer 8, Dresser 8, Desk 4, Shelf 3, "
        "Ottoman 2, CounterTop 1",
    ),
    "SaltShaker": _object("kitchen", "", "Cabinet 32, CounterTop 31, DiningTable 17, Drawer 14, Shelf 3, SideTable 2"),
    "SoapBar": _object(
        "bathroom",
        "cleanable",
        "CounterTop 20, Toilet 16, SinkBasin 14, Cabinet 13, Drawer 12, BathtubBasin 11, GarbageCan 8, Shelf 4, "
        "SideTable 2",
    ),
    "SoapBottle": _object(
        "kitchen bathroom",
        "",
        "CounterTop 31, Cabinet 28, DiningTable 15, GarbageCan 10, Toilet 7, Shelf 5, Drawer 2, SideTable 1",
    ),
    "Spatula": _object("kitchen", "cleanable", "CounterTop 44, DiningTable 25, Drawer 22, SinkBasin 9, SideTable 1"),
    "Spoon": _object("kitchen", "cleanable", "CounterTop 37, Drawer 28, DiningTable 22, SinkBasin 11, SideTable 2"),
    "SprayBottle": _object(
        "bathroom",
        "",
        "CounterTop 31, Toilet 24, Cabinet 18, GarbageCan 13, Shelf 5, DiningTable 3, Dresser 2, SideTable 2, Drawer 1",
    ),
    "Statue": _object(
        "kitchen bedroom living",
        "",
        "Shelf 29, CoffeeTable 18, CounterTop 15, DiningTable 14, SideTable 13, Dresser 8, Desk 3, Safe 1",
    ),
    "TissueBox": _object(
        "bathroom bedroom living",
        "",
        "Shelf 18, CoffeeTable 16, Drawer 15, CounterTop 13, SideTable 12, DiningTable 11, Desk 8, Cabinet 2, Dresser "
        "2, GarbageCan 2, Toilet 2",
    ),
    "ToiletPaper": _object(
        "bathroom",
        "",
        "Toilet 23, CounterTop 21, ToiletPaperHanger 14, Drawer 13, Cabinet 12, GarbageCan 9, Shelf 6, Dresser 2, "
        "SideTable 1",
    ),
    "Tomato": _object(
        "kitchen",
        "cleanable coolable heatable sliceable",
        "Fridge 33, CounterTop 29, DiningTable 20, GarbageCan 9, SinkBasin 6, SideTable 2, Microwave 1",
    ),
    "Vase": _object(
        "kitchen living",
        "",
        "Shelf 34, Cabinet 15, CounterTop 15, CoffeeTable 11, DiningTable 9, Dresser 7, SideTable 7, Desk 1, Safe 1",
    ),
    "Watch": _object(
        "living",
        "",
        "CoffeeTable 24, Drawer 23, SideTable 18, DiningTable 12, Dresser 12, Shelf 8, Desk 3",
    ),
    "WineBottle": _object(
        "kitchen",
        "coolable",
        "CounterTop 37, Cabinet 26, DiningTable 24, GarbageCan 9, Shelf 3, Fridge 1, SideTable 1",
    ),
}
"""Places are the receptacle kinds of each kind of object in ALFWorld's training games, with rounded frequencies."""


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
"""Receptacle kinds that are no task's target, although objects are found there."""

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
