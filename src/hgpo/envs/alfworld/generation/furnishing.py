"""Makes a game from a task instance, with a walkthrough; every game is solvable by construction.

`make_game` places the objects of the task and some others; `walkthrough` lists the commands that solve the game.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hgpo.envs.alfworld.game import Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.generation.floor_plans import FloorPlan, Size, TaskInstance
from hgpo.envs.alfworld.generation.household import APPLIANCES, LAMP_KIND, LAMP_PLACES, OBJECT_KINDS, OPENABLE_KINDS


def walkthrough(goal: Goal, receptacles: Sequence[Receptacle], objects: Sequence[GameObject]) -> tuple[str, ...]:
    """Commands that solve the game. Objects that only have to be moved must not start in a target receptacle.

    Example: `("go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "open fridge 1",
    "move apple 1 to fridge 1")`.
    """
    agent = _Walker(receptacles)
    wanted = [thing for thing in objects if thing.kind == goal.object_kind]
    if goal.task_type == "look_at_obj_in_light":
        lamp = next(thing for thing in objects if thing.kind == goal.target_kind)
        agent.take(wanted[0])
        agent.go(agent.by_id[lamp.receptacles[0]])
        agent.commands.append(f"use {lamp.name}")
        return tuple(agent.commands)
    target = agent.first_of_kind(goal.target_kind)
    for thing in wanted[: 2 if goal.task_type == "pick_two_obj_and_place" else 1]:
        agent.take(thing)
        if goal.task_type in APPLIANCES:
            verb, _, appliance_kind = APPLIANCES[goal.task_type]
            appliance = agent.first_of_kind(appliance_kind)
            agent.go(appliance)
            agent.commands.append(f"{verb} {thing.name} with {appliance.name}")
        agent.go(target)
        agent.open(target)
        agent.commands.append(f"move {thing.name} to {target.name}")
    return tuple(agent.commands)


class _Walker:
    """Collects commands and tracks the agent's location and the open receptacles."""

    def __init__(self, receptacles: Sequence[Receptacle]) -> None:
        self.commands: list[str] = []
        self.by_id = {receptacle.id: receptacle for receptacle in receptacles}
        self._receptacles = receptacles
        self._at: Receptacle | None = None
        self._open = {receptacle.id for receptacle in receptacles if receptacle.opened or not receptacle.openable}

    def first_of_kind(self, kind: str) -> Receptacle:
        return next(receptacle for receptacle in self._receptacles if receptacle.kind == kind)

    def go(self, place: Receptacle) -> None:
        if place is not self._at:
            self._at = place
            self.commands.append(f"go to {place.name}")

    def open(self, place: Receptacle) -> None:
        if place.id not in self._open:
            self._open.add(place.id)
            self.commands.append(f"open {place.name}")

    def take(self, thing: GameObject) -> None:
        place = self.by_id[thing.receptacles[0]]
        self.go(place)
        self.open(place)
        self.commands.append(f"take {thing.name} from {place.name}")


_MOST_OF_A_KIND = 1000
_ALL_KINDS = frozenset(OBJECT_KINDS)

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


def make_game(
    instance: TaskInstance,
    rng: np.random.Generator,
    *,
    size: Size,
    object_kinds: frozenset[str] = _ALL_KINDS,
) -> Game:
    """A game of a task instance: the objects that the task needs, and others of `object_kinds` that fit the room."""
    goal, plan, present = instance.goal, instance.plan, instance.plan.kinds
    receptacles = _receptacles(plan)
    wanted = _kinds_to_place(instance, rng, size, object_kinds)
    objects: list[GameObject] = []
    numbers: Counter[str] = Counter()
    for kind in wanted:
        place = _draw_place(kind, goal, plan, rng)
        numbers[kind] += 1
        objects.append(_object(kind, numbers[kind], place))
    carried = numbers.keys() - {LAMP_KIND}
    can_contain = frozenset((place, kind) for kind in carried for place in OBJECT_KINDS[kind].places.keys() & present)
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


@lru_cache(maxsize=512)
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
    instance: TaskInstance, rng: np.random.Generator, size: Size, object_kinds: frozenset[str]
) -> list[str]:
    """The kinds of the task, then others up to a number of objects drawn from the size's range."""
    goal = instance.goal
    needed = [goal.object_kind] * (2 if goal.task_type == "pick_two_obj_and_place" else 1)
    possible = _possible_kinds(instance.plan, object_kinds)
    fewest, most = size.objects
    others = int(rng.integers(fewest, most + 1)) - len(needed)
    drawn = [possible[index] for index in rng.integers(len(possible), size=others)] if others > 0 else []
    lamp = [LAMP_KIND] if goal.task_type == "look_at_obj_in_light" else []
    return needed + lamp + drawn


@lru_cache(maxsize=512)
def _possible_kinds(plan: FloorPlan, object_kinds: frozenset[str]) -> list[str]:
    """The kinds of objects that a floor plan has places for."""
    present = plan.kinds
    return [
        kind
        for kind, properties in OBJECT_KINDS.items()
        if kind in object_kinds and plan.room in properties.rooms and not present.isdisjoint(properties.places)
    ]


def _draw_place(kind: str, goal: Goal, plan: FloorPlan, rng: np.random.Generator) -> Receptacle:
    """A receptacle for an object, drawn by the frequencies of its kind; a task instance always has one."""
    # An object that only has to be moved does not start in a target.
    excluded = goal.target_kind if kind == goal.object_kind and goal.task_type not in APPLIANCES else None
    places, cumulative = _places(kind, excluded, plan)
    # As `rng.choice(len(places), p=...)` without its checks of `p`, which are slow for thousands of draws.
    return places[int(cumulative.searchsorted(rng.random(), side="right"))]


@lru_cache(maxsize=4096)
def _places(kind: str, excluded: str | None, plan: FloorPlan) -> tuple[tuple[Receptacle, ...], NDArray[np.float64]]:
    """The possible initial receptacles of an object, and their cumulative probabilities."""
    shares = LAMP_PLACES if kind == LAMP_KIND else OBJECT_KINDS[kind].places
    places = tuple(one for one in _receptacles(plan) if one.kind in shares and one.kind != excluded)
    copies = Counter(place.kind for place in places)
    weights = np.array([shares[place.kind] / copies[place.kind] for place in places])
    cumulative = (weights / weights.sum()).cumsum()
    return places, cumulative / cumulative[-1]


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
    """The id that `names_from_ids`, which numbers the ids of a kind downwards, turns into the name `kind number`."""
    part = f"_bar_{kind}" if kind.endswith("Basin") else ""
    return f"{kind.removesuffix('Basin')}_bar_{_MOST_OF_A_KIND - number:03d}{part}"
