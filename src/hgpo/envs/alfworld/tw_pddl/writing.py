"""Writes a `Game` as a `game.tw-pddl` file, which this engine, ALFWorld and TextWorld read.

The rules (`household.pddl`) and the wording (`household.twl2`) are the project's own and the same in every file; the
problem is the game.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from hgpo.envs.alfworld.actions import (
    CLEANING_KINDS,
    COOLING_KINDS,
    HEATING_KINDS,
    KNIFE_KINDS,
    STATE_PREDICATES,
    Layout,
)
from hgpo.envs.alfworld.engine import TREATMENTS
from hgpo.envs.alfworld.game import Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.text import HELP, names_from_ids

TRAJECTORY_FILE = "traj_data.json"
_AGENT = "agent1"
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_MARKUP = re.compile(r'[#{}\[\]|;"<>\\]|[^\x20-\x7e]')  # signs of the text grammar

_PLACED = "(objectType ?item {object}Type) (receptacleType ?r {target}Type) (inReceptacle ?item ?r)"
_LIT = (
    "(objectType ?item {object}Type) (holds ?agent ?item) (objectType ?lamp {target}Type) (toggleable ?lamp) "
    "(isToggled ?lamp) (inReceptacle ?lamp ?r) (receptacleAtLocation ?r ?spot) (atLocation ?agent ?spot)"
)


def export_game(game: Game) -> str:
    """The text of a `game.tw-pddl` file: JSON with the five entries of the published files.

    `ValueError` for an id, a kind, a name or a task sentence that the format does not allow.
    """
    Layout.of(game)  # rejects missing and duplicate ids
    _check(game)
    entries = {
        "pddl_domain": _rules("household.pddl"),
        "grammar": _rules("household.twl2")
        .replace("HELP TEXT", json.dumps(HELP)[1:-1])
        .replace("TASK SENTENCE", json.dumps(game.task)[1:-1]),
        "pddl_problem": _problem(game),
        "solvable": game.solvable,
        "walkthrough": list(game.walkthrough),
    }
    return json.dumps(entries, indent=1) + "\n"


def trajectory_file(game: Game) -> str:
    """The text of the `traj_data.json` next to a game file, from which ALFWorld reads the task's type and kinds."""
    lamp = game.goal.task_type == "look_at_obj_in_light"
    entries = {
        "task_type": game.goal.task_type,
        "pddl_params": {
            "object_target": game.goal.object_kind,
            "parent_target": "" if lamp else game.goal.target_kind,
            "toggle_target": game.goal.target_kind if lamp else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
    }
    return json.dumps(entries, indent=1) + "\n"


@cache
def _rules(name: str) -> str:
    return (files("hgpo.envs.alfworld.tw_pddl") / name).read_text(encoding="utf-8")


def _check(game: Game) -> None:
    things: list[Receptacle | GameObject] = [*game.receptacles, *game.objects]
    words = [*(thing.id for thing in things), *_object_kinds(game), *_receptacle_kinds(game), *_locations(game)]
    for word in words:
        if not _NAME.fullmatch(word):
            raise ValueError(f"{game.name}: {word!r} is no PDDL name; use letters, digits, - and _, a letter first")
    names = names_from_ids(thing.id for thing in things)
    for thing in things:
        if names[thing.id] != thing.name:
            raise ValueError(
                f"{game.name}: in a game file the id {thing.id!r} means {names[thing.id]!r}, not {thing.name!r}; "
                "choose another id"
            )
    if sign := _MARKUP.search(game.task):
        raise ValueError(f"{game.name}: the task sentence holds {sign[0]!r}, which a game file's text cannot")


def _problem(game: Game) -> str:
    lines = ["(define (problem household-game)", " (:domain household)", " (:objects"]
    lines += [f"  {' '.join(names)} - {kind}" for kind, names in _declarations(game).items() if names]
    lines += [" )", " (:init"]
    lines += [f"  ({' '.join(fact)})" for fact in _facts(game)]
    lines += [" )", f" (:goal {_goal(game.goal)})", ")", ""]
    return "\n".join(lines)


def _declarations(game: Game) -> Mapping[str, list[str]]:
    return {
        "agent": [_AGENT],
        "location": _locations(game),
        "receptacle": [receptacle.id for receptacle in game.receptacles],
        "object": [thing.id for thing in game.objects],
        "rtype": [f"{kind}Type" for kind in _receptacle_kinds(game)],
        "otype": [f"{kind}Type" for kind in _object_kinds(game)],
    }


def _locations(game: Game) -> list[str]:
    """Every location, in the order of first mention."""
    of_receptacles = [receptacle.location for receptacle in game.receptacles]
    of_objects = [thing.location for thing in game.objects if thing.location is not None]
    return list(dict.fromkeys([*game.locations, game.agent_location, *of_receptacles, *of_objects]))


def _object_kinds(game: Game) -> list[str]:
    stated = {thing.kind for thing in game.objects if thing.kind} | {kind for _, kind in game.can_contain}
    # The rules mention knives and appliances, so these kinds must be declared in games without them.
    return sorted(stated | {game.goal.object_kind} | KNIFE_KINDS | _lamp_kinds(game.goal))


def _receptacle_kinds(game: Game) -> list[str]:
    stated = {receptacle.kind for receptacle in game.receptacles} | {kind for kind, _ in game.can_contain}
    wanted = {game.goal.target_kind} - _lamp_kinds(game.goal)
    return sorted((stated | wanted | CLEANING_KINDS | HEATING_KINDS | COOLING_KINDS) - set(_object_kinds(game)))


def _lamp_kinds(goal: Goal) -> set[str]:
    return {goal.target_kind} if goal.task_type == "look_at_obj_in_light" else set()


def _facts(game: Game) -> Iterator[Iterable[str]]:
    yield "atLocation", _AGENT, game.agent_location
    for receptacle in game.receptacles:
        yield "receptacleType", receptacle.id, f"{receptacle.kind}Type"
        yield "receptacleAtLocation", receptacle.id, receptacle.location
        if receptacle.openable:
            yield "openable", receptacle.id
        if receptacle.opened:
            yield "opened", receptacle.id
    for thing in game.objects:
        if thing.kind:
            yield "objectType", thing.id, f"{thing.kind}Type"
        if thing.location is not None:
            yield "objectAtLocation", thing.id, thing.location
        for receptacle_id in thing.receptacles:
            yield "inReceptacle", thing.id, receptacle_id
        for holder in () if thing.inside is None else (thing.inside, *thing.also_inside):
            yield "inReceptacleObject", thing.id, holder
        for name in sorted(thing.properties):
            yield name, thing.id
    for place, kind in sorted(game.can_contain):
        yield "canContain", f"{place}Type", f"{kind}Type"


def _goal(goal: Goal) -> str:
    variables, conditions = "?item - object ?r - receptacle", _PLACED
    if goal.task_type == "look_at_obj_in_light":
        variables = "?item ?lamp - object ?r - receptacle ?spot - location ?agent - agent"
        conditions = _LIT
    elif goal.task_type == "pick_two_obj_and_place":
        variables = "?item ?other - object ?r - receptacle"
        conditions += " (objectType ?other {object}Type) (inReceptacle ?other ?r) (not (= ?item ?other))"
    elif goal.task_type in TREATMENTS:
        ability, state = TREATMENTS[goal.task_type]
        conditions += f" ({ability} ?item) ({STATE_PREDICATES[state]} ?item)"
    filled = conditions.format(object=goal.object_kind, target=goal.target_kind)
    return f"(exists ({variables}) (and {filled}))"
