"""The content of one household game: receptacles, objects and the goal.

The reader of game files (`tw_pddl/reading.py`) and the generator (`generation/furnishing.py`) produce a `Game`;
`engine.py` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


@dataclass(frozen=True, slots=True)
class Receptacle:
    """A fixed container of objects.

    Attributes:
        id: its id in the game file, e.g. `"Fridge_bar_1"`.
        name: its name in commands and observations, e.g. `"fridge 1"`.
        kind: the PDDL type without the suffix `Type`, e.g. `"SinkBasin"`.
        location: id of the location at which the agent reaches it.
        openable: whether it opens and closes.
        opened: whether it is open at the start.
    """

    id: str
    name: str
    kind: str
    location: str
    openable: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class GameObject:
    """An object that is not a receptacle; most can be carried.

    Attributes:
        id: its id in the game file.
        name: its name in commands and observations.
        kind: the PDDL type without the suffix `Type`.
        receptacles: ids of the receptacles it is in; a real game may name several.
        location: id of its own location; None if the game states none.
        inside: ids of the objects that contain it (`inReceptacleObject`).
        properties: PDDL predicates that are true of it at the start: `pickupable`, `cleanable`, `heatable`, `coolable`,
            `sliceable`, `toggleable`, `moveable`, `isReceptacleObject`, `isClean`, `isHot`, `isCool`, `isSliced`,
            `isToggled`, `isOn`.
    """

    id: str
    name: str
    kind: str
    receptacles: tuple[str, ...] = ()
    location: str | None = None
    inside: tuple[str, ...] = ()
    properties: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the six goal templates.

    Attributes:
        task_type: one of `TASK_TYPES`.
        object_kind: kind of the object to place or to examine.
        target_kind: kind of the receptacle; for `look_at_obj_in_light` the kind of the lamp, `"DeskLamp"`.
    """

    task_type: str
    object_kind: str
    target_kind: str


@dataclass(frozen=True, slots=True)
class Game:
    """A whole game.

    Attributes:
        name: the game's name.
        task: the sentence after "Your task is to: ", full stop included.
        goal: the goal.
        receptacles: in the game file's order.
        objects: in the game file's order.
        can_contain: pairs (receptacle kind, object kind that it can contain).
        agent_location: id of the location where the agent starts.
        locations: ids of all locations.
        walkthrough: commands that solve the game.
        solvable: whether the game file marks it as solvable.
        digest: SHA-256 of the game file; "" for a game that was not read from a file.
    """

    name: str
    task: str
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    objects: tuple[GameObject, ...]
    can_contain: frozenset[tuple[str, str]]
    agent_location: str
    locations: tuple[str, ...] = ()
    walkthrough: tuple[str, ...] = ()
    solvable: bool = True
    digest: str = field(default="", compare=False)
