"""Game sizes, the fixed catalogue of floor plans for each size, and the task instances of a floor plan.

Like ALFWorld's numbered scenes, floor plans depend on the size only, never on the seed of a suite: a held-out floor
plan is held out for every seed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pydantic import ConfigDict

from hgpo.envs.alfworld.game import Goal
from hgpo.envs.alfworld.generation.household import (
    APPLIANCES,
    LAMP_KIND,
    LAMP_PLACES,
    NEVER_TARGETS,
    OBJECT_KINDS,
    ROOMS,
    ObjectKind,
    Room,
)

_UNSEEN_PAIR_EVERY = 5


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """A goal on a floor plan, such as two pillows on a sofa in `living03`."""

    goal: Goal
    plan: FloorPlan


def is_unseen_pair(object_kind: str, target_kind: str) -> bool:
    """Whether goals with this object and target are held out; the same for every task type, size and seed."""
    return zlib.crc32(f"{object_kind}/{target_kind}".encode()) % _UNSEEN_PAIR_EVERY == 0


@lru_cache(maxsize=256)
def task_instances(size: Size, task_type: str, unseen: bool) -> tuple[TaskInstance, ...]:
    """Every task instance of a type on the floor plans of a size.

    With `unseen` both the floor plan and the object-target pair are held out; without it neither is.
    """
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
    """The target kinds for which the task is possible and not done at the start."""
    places = properties.places.keys() & present
    if task_type == "look_at_obj_in_light":
        return [LAMP_KIND] if places and LAMP_PLACES.keys() & present else []
    if task_type in APPLIANCES:
        _, needed, appliance = APPLIANCES[task_type]
        possible = needed in properties.properties and appliance in present
        return sorted(places - NEVER_TARGETS - {appliance}) if possible else []
    return sorted(kind for kind in places - NEVER_TARGETS if places - {kind})


PLANS_PER_ROOM = 20
_UNSEEN_EVERY = 5  # every fifth plan of a room is held out
_MOST_RECEPTACLES = 35  # every kind of room has space for at least this many
_WHOLE_ROOM = 10  # from this many receptacles, a room has all kinds of its anchors


@dataclass(frozen=True, slots=True)
class Size:
    """The size of games; ranges are inclusive.

    Attributes:
        receptacles: fewest and most receptacles; a room has fewer if `copies` permits no more.
        objects: fewest and most objects that can be carried; a task that needs two has at least two.
        copies: most receptacles of one kind.
    """

    receptacles: tuple[int, int]
    objects: tuple[int, int]
    copies: int = _MOST_RECEPTACLES
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        low, high = self.receptacles
        if not 3 <= low <= high <= _MOST_RECEPTACLES:
            raise ValueError(f"size: receptacles={self.receptacles}; give 3 <= low <= high <= {_MOST_RECEPTACLES}")
        fewest, most = self.objects
        if not 1 <= fewest <= most <= 100:
            raise ValueError(f"size: objects={self.objects}; give 1 <= low <= high <= 100")
        if self.copies < 1:
            raise ValueError(f"size: copies={self.copies}; give at least 1")


SIZES = {
    "small": Size(receptacles=(4, 6), objects=(1, 3), copies=2),
    "medium": Size(receptacles=(9, 14), objects=(5, 9), copies=4),
    "full": Size(receptacles=(20, 35), objects=(15, 30)),
}


@dataclass(frozen=True, slots=True)
class FloorPlan:
    """A room with its receptacles.

    Attributes:
        name: name of the floor plan, such as `living03`.
        room: the kind of room.
        counts: pairs (receptacle kind, number), sorted by kind.
        unseen: whether it is only in the unseen split.
    """

    name: str
    room: str
    counts: tuple[tuple[str, int], ...]
    unseen: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The receptacle kinds in the room."""
        return frozenset(kind for kind, _ in self.counts)


@lru_cache(maxsize=32)
def floor_plans(size: Size) -> tuple[FloorPlan, ...]:
    """The catalogue for a size: up to 20 different layouts per room, a fifth of them for the unseen split."""
    plans: list[FloorPlan] = []
    layouts: set[tuple[tuple[str, int], ...]] = set()
    for name, room in ROOMS.items():
        for number in range(PLANS_PER_ROOM):
            rng = np.random.default_rng([zlib.crc32(name.encode()), number, *size.receptacles, size.copies])
            counts = _draw_layout(room, number, size, rng)
            if counts not in layouts:  # two equal layouts could end up on both sides of the split
                layouts.add(counts)
                unseen = number % _UNSEEN_EVERY == _UNSEEN_EVERY - 1
                plans.append(FloorPlan(f"{name}{number:02d}", name, counts, unseen))
    return tuple(plans)


def _draw_layout(room: Room, number: int, size: Size, rng: np.random.Generator) -> tuple[tuple[str, int], ...]:
    low, high = size.receptacles
    wanted = int(rng.integers(low, high + 1))
    if wanted >= _WHOLE_ROOM:
        present = sorted({kind for anchor in room.anchors for kind in anchor})
    else:
        present = list(room.anchors[number % len(room.anchors)])
    spare = [kind for kind, most in room.receptacles.items() for _ in range(min(most, size.copies))]
    for kind in present:
        spare.remove(kind)
    extra = rng.permutation(len(spare))[: max(0, wanted - len(present))]
    drawn = present + [spare[index] for index in extra]
    return tuple((kind, drawn.count(kind)) for kind in sorted(set(drawn)))
