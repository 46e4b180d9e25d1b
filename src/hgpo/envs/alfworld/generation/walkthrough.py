"""The commands that solve a household game whose content is known."""

from __future__ import annotations

from collections.abc import Sequence

from hgpo.envs.alfworld.game import GameObject, Goal, Receptacle
from hgpo.envs.alfworld.household.rooms import APPLIANCES


def walkthrough(goal: Goal, receptacles: Sequence[Receptacle], objects: Sequence[GameObject]) -> tuple[str, ...]:
    """A short solution; it supposes that the objects of the goal's kind start in no target receptacle.

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
    """Writes commands and remembers where the agent is and what is open, so that no command is wasted."""

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
