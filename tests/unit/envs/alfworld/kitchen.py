"""A kitchen small enough to know by heart, as a `Game` and as the text of a game file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hgpo.envs.alfworld import Game, GameObject, Goal, Receptacle

FOOD = frozenset({"pickupable", "cleanable", "heatable", "coolable", "sliceable"})
PLACE_APPLE = Goal("pick_and_place_simple", "Apple", "Shelf")


def kitchen(goal: Goal = PLACE_APPLE, **changes: Any) -> Game:
    """Counter and shelf stand side by side at one location; a plate in the fridge holds a fork."""
    game = Game(
        name="kitchen",
        task="put some apple on shelf.",
        goal=goal,
        receptacles=(
            Receptacle("CounterTop_bar_1", "countertop 1", "CounterTop", "loc_bar_1"),
            Receptacle("Fridge_bar_1", "fridge 1", "Fridge", "loc_bar_2", openable=True),
            Receptacle("Microwave_bar_1", "microwave 1", "Microwave", "loc_bar_3", openable=True),
            Receptacle("Shelf_bar_1", "shelf 1", "Shelf", "loc_bar_1"),
            Receptacle("Sink_bar_1_bar_SinkBasin", "sinkbasin 1", "SinkBasin", "loc_bar_4"),
        ),
        objects=(
            GameObject("Apple_bar_1", "apple 2", "Apple", ("CounterTop_bar_1",), "loc_bar_1", properties=FOOD),
            GameObject("Apple_bar_2", "apple 1", "Apple", ("Fridge_bar_1",), "loc_bar_2", properties=FOOD | {"isCool"}),
            GameObject("DeskLamp_bar_1", "desklamp 1", "DeskLamp", ("Shelf_bar_1",), "loc_bar_1", properties=_LAMP),
            GameObject("Fork_bar_1", "fork 1", "Fork", ("Fridge_bar_1",), "loc_bar_2", ("Plate_bar_1",), _CUTLERY),
            GameObject("Knife_bar_1", "knife 1", "Knife", ("CounterTop_bar_1",), "loc_bar_1", properties=_CUTLERY),
            GameObject("Plate_bar_1", "plate 1", "Plate", ("Fridge_bar_1",), "loc_bar_2", properties=_DISH),
            GameObject("Window_bar_1", "window 1", "Window", (), "loc_bar_5"),
        ),
        can_contain=frozenset(
            (place, kind)
            for place in ("CounterTop", "Fridge", "Microwave", "Shelf", "SinkBasin")
            for kind in ("Apple", "Knife", "Plate")
            if (place, kind) != ("Microwave", "Knife")
        ),
        agent_location="loc_bar_0",
        locations=tuple(f"loc_bar_{number}" for number in range(6)),
    )
    return replace(game, **changes)


def game_file(problem: str | None = None, **changes: Any) -> str:
    """The text of a game file that describes the kitchen; keyword arguments replace its entries, None removes one."""
    entries = {
        "pddl_domain": "(define (domain alfred)\n" + "".join(f"(:action {name})\n" for name in COMMANDS) + ")",
        "grammar": grammar("put some apple on shelf."),
        "pddl_problem": problem_text(kitchen()) if problem is None else problem,
        "solvable": True,
        "walkthrough": ["go to countertop 1", "take apple 2 from countertop 1", "move apple 2 to shelf 1"],
        **changes,
    }
    return json.dumps({key: value for key, value in entries.items() if value is not None})


COMMANDS = {
    "CleanObject": "clean {o} with {r}",
    "CloseObject": "close {r}",
    "CoolObject": "cool {o} with {r}",
    "GotoLocation": "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]",
    "HeatObject": "heat {o} with {r}",
    "OpenObject": "open {r}",
    "PickupObject": "take {o} from {r}",
    "PutObject": "move {o} to {r}",
    "SliceObject": "slice {co} with {ko}",
    "ToggleObject": "use {o}",
    "examineObject": "examine {o}",
    "examineReceptacle": "examine {r}",
    "help": "help",
    "inventory": "inventory",
    "look": "look",
}

PLACE_GOAL = """(:goal (and (exists (?r - receptacle) (exists (?o - object)
    (and (inReceptacle ?o ?r) (objectType ?o AppleType) (receptacleType ?r ShelfType))))))"""


def grammar(task: str) -> str:
    """The parts of a text grammar that the reader looks at."""
    templates = "".join(f'action {name} {{\n    template :: "{words}";\n}}\n' for name, words in COMMANDS.items())
    return f'grammar :: """{{"task": [{{"rhs": "Your task is to: {task}"}}]}}""";\n' + templates


def problem_text(game: Game, goal: str = PLACE_GOAL) -> str:
    """A game in the planner's language."""
    declared = [f"agent1 - agent {' '.join(game.locations)} - location"]
    declared += [f"{receptacle.id} - receptacle" for receptacle in game.receptacles]
    declared += [f"{item.id} - object" for item in game.objects]
    declared += [f"{kind}Type - rtype" for kind in sorted({receptacle.kind for receptacle in game.receptacles})]
    declared += [f"{kind}Type - otype" for kind in sorted({item.kind for item in game.objects})]
    return "\n".join(
        [
            "(define (problem kitchen) (:domain alfred)",
            "(:objects",
            *declared,
            ")",
            "(:init",
            *_facts(game),
            ")",
            goal,
            ")",
        ]
    )


def _facts(game: Game) -> list[str]:
    facts = [f"(atLocation agent1 {game.agent_location}) ; the player"]
    for receptacle in game.receptacles:
        facts.append(f"(receptacleType {receptacle.id} {receptacle.kind}Type)")
        facts.append(f"(receptacleAtLocation {receptacle.id} {receptacle.location})")
        facts += [f"(openable {receptacle.id})"] if receptacle.openable else []
    for item in game.objects:
        facts.append(f"(objectType {item.id} {item.kind}Type)")
        facts.append(f"(objectAtLocation {item.id} {item.location})")
        facts += [f"(inReceptacle {item.id} {receptacle})" for receptacle in item.receptacles]
        facts += [f"(inReceptacleObject {item.id} {holder})" for holder in item.inside]
        facts += [f"({name} {item.id})" for name in sorted(item.properties)]
    return facts + [f"(canContain {place}Type {kind}Type)" for place, kind in sorted(game.can_contain)]


_CUTLERY = frozenset({"pickupable", "cleanable"})
_DISH = frozenset({"pickupable", "cleanable", "isReceptacleObject"})
_LAMP = frozenset({"toggleable"})
