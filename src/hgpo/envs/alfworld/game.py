"""The content of one household game: what stands where, what can be done with it, and what is asked.

The readers of game files (`tw_pddl/`, `generation/json_lines.py`) and the generator (`generation/furnishing.py`) all
produce a `Game`; `engine/` plays it.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """A fixed place that can hold objects. `kind` is the PDDL type less its suffix, e.g. `"SinkBasin"`."""

    id: str
    name: str
    kind: str
    location: str
    openable: bool = False
    opened: bool = False


@dataclass(frozen=True, slots=True)
class GameObject:
    """Anything that is not a receptacle; most can be carried.

    `properties` holds the PDDL predicates true of it at the start, by their PDDL names: `pickupable`,
    `cleanable`, `heatable`, `coolable`, `sliceable`, `toggleable`, `isReceptacleObject`, `isClean`,
    `isHot`, `isCool`, `isSliced`, `isToggled`, `isOn`. `receptacles` are ids of the receptacles it is in
    (a real game may name several), `location` is None where the game states none.
    """

    id: str
    name: str
    kind: str
    receptacles: tuple[str, ...] = ()
    location: str | None = None
    inside: str | None = None  # id of the object that contains this one (inReceptacleObject)
    properties: frozenset[str] = frozenset()
    also_inside: tuple[str, ...] = ()  # further objects that contain it; only real games state such things


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the six goal templates. For `look_at_obj_in_light` the target is the lamp's kind: `"DeskLamp"`."""

    task_type: str
    object_kind: str
    target_kind: str


@dataclass(frozen=True, slots=True)
class Game:
    """A whole game, ready to be played. Order of `receptacles` and `objects` is the game file's."""

    name: str
    task: str  # the sentence after "Your task is to: ", full stop included
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    objects: tuple[GameObject, ...]
    can_contain: frozenset[tuple[str, str]]  # (receptacle kind, object kind)
    agent_location: str
    locations: tuple[str, ...] = ()
    walkthrough: tuple[str, ...] = ()
    solvable: bool = True
