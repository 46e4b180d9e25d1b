"""Makes household games of the six task types, each solvable by construction and with its walkthrough attached.

A *task instance* says what is asked, of which kinds, on which floor plan; `make_game` furnishes it: it places the
objects that the task needs and some others, and writes down the commands that solve it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hgpo.envs.alfworld.floor_plans import FloorPlan, Size, floor_plans, named_size
from hgpo.envs.alfworld.game import TASK_TYPES, Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.household import (
    APPLIANCES,
    LAMP_KIND,
    LAMP_PLACES,
    NEVER_TARGETS,
    OPENABLE_KINDS,
)
from hgpo.envs.alfworld.object_kinds import OBJECT_KINDS, ObjectKind
from hgpo.envs.alfworld.walkthrough import walkthrough

_UNSEEN_PAIR_EVERY = 5
_MOST_OF_A_KIND = 1000

_SENTENCES: Mapping[str, tuple[str, str]] = {
    "pick_and_place_simple": ("put a {object} in {target}.", "put some {object} on {target}."),
    "look_at_obj_in_light": ("look at {object} under the {target}.", "examine the {object} with the {target}."),
    "pick_clean_then_place_in_recep": (
        "put a clean {object} in {target}.",
        "clean some {object} and put it in {target}.",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {object} in {target}.", "heat some {object} and put it in {target}."),
    "pick_cool_then_place_in_recep": ("put a cool {object} in {target}.", "cool some {object} and put it in {target}."),
    "pick_two_obj_and_place": ("put two {object} in {target}.", "find two {object} and put them in {target}."),
}


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """What is asked and where. Example: two pillows on a sofa, in the layout `living03`."""

    goal: Goal
    plan: FloorPlan


def is_unseen_pair(object_kind: str, target_kind: str) -> bool:
    """Whether goals with this object and target are held out; the same for every task type, size and seed."""
    return zlib.crc32(f"{object_kind}/{target_kind}".encode()) % _UNSEEN_PAIR_EVERY == 0


@lru_cache(maxsize=256)
def task_instances(size: Size, task_type: str, unseen: bool) -> tuple[TaskInstance, ...]:
    """Every task instance of a type that the floor plans of a size allow, on one side of the split.

    With `unseen` both the floor plan and the object-target pair are held out; without it neither is.
    """
    if task_type not in TASK_TYPES:
        raise ValueError(f"unknown task type {task_type!r}; choose among {', '.join(TASK_TYPES)}")
    return tuple(
        TaskInstance(Goal(task_type, object_kind, target), plan)
        for plan in floor_plans(size)
        if plan.unseen == unseen
        for object_kind, properties in OBJECT_KINDS.items()
        if plan.room in properties.rooms
        for target in _possible_targets(task_type, properties, plan.kinds)
        if is_unseen_pair(object_kind, target) == unseen
    )


def generate_game(
    rng: np.random.Generator,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    task_types: Sequence[str] = TASK_TYPES,
    unseen: bool = False,
) -> Game:
    """One random game. Example: `generate_game(np.random.default_rng(0), task_types=["pick_two_obj_and_place"])`."""
    size = named_size(size)
    task_type = task_types[int(rng.integers(len(task_types)))]
    instances = task_instances(size, task_type, unseen)
    if not instances:
        raise ValueError(f"no room of size {size} allows {task_type}; ask for more receptacles")
    return make_game(instances[int(rng.integers(len(instances)))], rng, size=size)


def make_game(
    instance: TaskInstance,
    rng: np.random.Generator,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    object_kinds: Collection[str] | None = None,
) -> Game:
    """Furnish a task instance: place its objects and others of `object_kinds` (default: all that fit the room)."""
    goal, plan = instance.goal, instance.plan
    receptacles = _receptacles(plan)
    wanted = _kinds_to_place(instance, rng, named_size(size), OBJECT_KINDS if object_kinds is None else object_kinds)
    objects: list[GameObject] = []
    numbers: Counter[str] = Counter()
    for kind in wanted:
        place = _draw_place(kind, goal, receptacles, rng)
        if place is not None:
            numbers[kind] += 1
            objects.append(_object(kind, numbers[kind], place))
    carried = numbers.keys() - {LAMP_KIND}
    can_contain = frozenset(
        (place, kind) for kind in carried for place in OBJECT_KINDS[kind].places if place in plan.kinds
    )
    sentence = _SENTENCES[goal.task_type][int(rng.integers(2))]
    return Game(
        name=f"{goal.task_type}-{goal.object_kind}-None-{goal.target_kind}-{plan.name}",
        task=sentence.format(object=goal.object_kind.lower(), target=goal.target_kind.lower()),
        goal=goal,
        receptacles=receptacles,
        objects=tuple(objects),
        can_contain=can_contain,
        agent_location="location_0",
        locations=("location_0", *(receptacle.location for receptacle in receptacles)),
        walkthrough=walkthrough(goal, receptacles, objects),
    )


def _possible_targets(task_type: str, properties: ObjectKind, present: frozenset[str]) -> list[str]:
    """The target kinds for which the task makes sense and is not done from the start."""
    places = properties.places.keys() & present
    if task_type == "look_at_obj_in_light":
        return [LAMP_KIND] if places and LAMP_PLACES.keys() & present else []
    if task_type in APPLIANCES:
        _, needed, appliance = APPLIANCES[task_type]
        possible = needed in properties.properties and appliance in present
        return sorted(places - NEVER_TARGETS - {appliance}) if possible else []
    return sorted(kind for kind in places - NEVER_TARGETS if places - {kind})


def _receptacles(plan: FloorPlan) -> tuple[Receptacle, ...]:
    kinds_and_numbers = ((kind, number) for kind, count in plan.counts for number in range(1, count + 1))
    return tuple(
        Receptacle(
            id=_identifier(kind, number),
            name=f"{kind.lower()} {number}",
            kind=kind,
            location=f"location_{index}",
            openable=kind in OPENABLE_KINDS,
        )
        for index, (kind, number) in enumerate(kinds_and_numbers, start=1)
    )


def _kinds_to_place(
    instance: TaskInstance, rng: np.random.Generator, size: Size, object_kinds: Collection[str]
) -> list[str]:
    """The kinds that the task needs, first, and then others up to a number of objects drawn from the size's range."""
    goal, plan = instance.goal, instance.plan
    needed = [goal.object_kind] * (2 if goal.task_type == "pick_two_obj_and_place" else 1)
    possible = [
        kind
        for kind, properties in OBJECT_KINDS.items()
        if kind in object_kinds and plan.room in properties.rooms and properties.places.keys() & plan.kinds
    ]
    fewest, most = size.objects
    others = int(rng.integers(fewest, most + 1)) - len(needed)
    drawn = [possible[index] for index in rng.integers(len(possible), size=others)] if others > 0 else []
    lamp = [LAMP_KIND] if goal.task_type == "look_at_obj_in_light" else []
    return needed + lamp + drawn


def _draw_place(
    kind: str, goal: Goal, receptacles: Sequence[Receptacle], rng: np.random.Generator
) -> Receptacle | None:
    """A receptacle for an object, likelier where its kind is likelier found; None where there is no place for it.

    What only has to be moved does not start where it should end.
    """
    shares = LAMP_PLACES if kind == LAMP_KIND else OBJECT_KINDS[kind].places
    taboo = goal.target_kind if kind == goal.object_kind and goal.task_type not in APPLIANCES else None
    places = [receptacle for receptacle in receptacles if receptacle.kind in shares and receptacle.kind != taboo]
    if not places:
        return None
    copies = Counter(place.kind for place in places)
    weights = np.array([shares[place.kind] / copies[place.kind] for place in places])
    return places[int(rng.choice(len(places), p=weights / weights.sum()))]


def _object(kind: str, number: int, place: Receptacle) -> GameObject:
    properties = frozenset({"toggleable"}) if kind == LAMP_KIND else OBJECT_KINDS[kind].properties
    return GameObject(
        id=_identifier(kind, number),
        name=f"{kind.lower()} {number}",
        kind=kind,
        receptacles=(place.id,),
        location=place.location,
        properties=properties,
    )


def _identifier(kind: str, number: int) -> str:
    """An id from which the simulator's own rule makes the same name: it numbers the ids of a kind downwards."""
    part = f"_bar_{kind}" if kind.endswith("Basin") else ""
    return f"{kind.removesuffix('Basin')}_bar_{_MOST_OF_A_KIND - number:03d}{part}"
