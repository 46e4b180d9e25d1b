"""Task instances: what is asked, of which kinds, on which floor plan, and which of them are held out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

from hgpo.envs.alfworld.game import TASK_TYPES, Goal
from hgpo.envs.alfworld.generation.floor_plans import FloorPlan, Size, floor_plans
from hgpo.envs.alfworld.household.object_kinds import OBJECT_KINDS, ObjectKind
from hgpo.envs.alfworld.household.rooms import APPLIANCES, LAMP_KIND, LAMP_PLACES, NEVER_TARGETS

_UNSEEN_PAIR_EVERY = 5


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """What is asked and where, such as two pillows on a sofa in the layout `living03`.

    Attributes:
        goal: what is asked.
        plan: the floor plan in which it is asked.
    """

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
