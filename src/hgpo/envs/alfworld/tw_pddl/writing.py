"""Writes games as `game.tw-pddl` files, which this engine, ALFWorld and TextWorld read: one game, or generated splits.

The rules (`household.pddl`) and the wording (`household.twl2`) are the project's own and the same in every file; only
the problem describes the game.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.actions import CLEANING_KINDS, COOLING_KINDS, HEATING_KINDS, KNIFE_KINDS, Layout
from hgpo.envs.alfworld.game import TASK_TYPES, Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.generation.floor_plans import SIZES, Size
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES, GeneratedGames
from hgpo.envs.alfworld.text import HELP, names_from_ids
from hgpo.envs.alfworld.tw_pddl.problem import GOAL_TEMPLATES
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE
from hgpo.envs.base import SPLITS, named_size
from hgpo.utils.files import (
    delete_folder,
    exclusive_path,
    flush_everything,
    renamed_to_delete,
    scratch_folder,
    write_text,
)

TRAJECTORY_FILE = "traj_data.json"
_AGENT = "agent1"
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_MARKUP = re.compile(r'[#{}\[\]|;"<>\\]|[^\x20-\x7e]')  # characters with a meaning in the text grammar

_VARIABLES = {
    "object": ("?item", "?lamp", "?other"),
    "receptacle": ("?r",),
    "location": ("?spot",),
    "agent": ("?agent",),
}


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
        raise ValueError(f"{game.name}: the task sentence contains {sign[0]!r}, which no game file can; remove it")


def _problem(game: Game) -> str:
    declared = {
        "agent": [_AGENT],
        "location": _locations(game),
        "receptacle": [receptacle.id for receptacle in game.receptacles],
        "object": [thing.id for thing in game.objects],
        "rtype": [f"{kind}Type" for kind in _receptacle_kinds(game)],
        "otype": [f"{kind}Type" for kind in _object_kinds(game)],
    }
    lines = ["(define (problem household-game)", " (:domain household)", " (:objects"]
    lines += [f"  {' '.join(names)} - {kind}" for kind, names in declared.items() if names]
    lines += [" )", " (:init"]
    lines += [f"  ({' '.join(fact)})" for fact in _facts(game)]
    lines += [" )", f" (:goal {_goal(game.goal)})", ")", ""]
    return "\n".join(lines)


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
        for holder in thing.inside:
            yield "inReceptacleObject", thing.id, holder
        for name in sorted(thing.properties):
            yield name, thing.id
    for place, kind in sorted(game.can_contain):
        yield "canContain", f"{place}Type", f"{kind}Type"


def _goal(goal: Goal) -> str:
    kinds = {"OBJECT": f"{goal.object_kind}Type", "TARGET": f"{goal.target_kind}Type"}
    conditions = [[kinds.get(word, word) for word in pattern.split()] for pattern in GOAL_TEMPLATES[goal.task_type]]
    used = {word for condition in conditions for word in condition}
    variables = [
        f"{' '.join(name for name in names if name in used)} - {kind}"
        for kind, names in _VARIABLES.items()
        if not used.isdisjoint(names)
    ]
    facts = [
        f"(not (= {' '.join(words)}))" if predicate == "different" else f"({predicate} {' '.join(words)})"
        for predicate, *words in conditions
    ]
    return f"(exists ({' '.join(variables)}) (and {' '.join(facts)}))"


_PROVENANCE_FILE = "generated.json"


def generate_games(
    out_dir: str | Path,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    games: Mapping[str, int] | None = None,
    task_types: Sequence[str] = TASK_TYPES,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write generated games to a folder and return the folder of each split.

    The games are those of `alfworld_suite` with the same options. Each is written to
    `<split>/<task>-<object>-None-<target>-<layout>/trial_<number>/game.tw-pddl`, which ALFWorld reads too.

    A folder that is not empty is a `FileExistsError` unless `overwrite` is true; then its generated games are replaced
    and other files are kept. Split folders that this function did not write are never replaced.
    """
    out_dir = Path(out_dir)
    if out_dir.exists() and not out_dir.is_dir():
        raise FileExistsError(f"{out_dir} is a file; the games go into a folder, so choose another name")
    _refuse_taken(out_dir, overwrite)
    try:
        written = dict(json.loads((out_dir / _PROVENANCE_FILE).read_bytes())["games"])
    except (OSError, ValueError, KeyError, TypeError):
        written = {}
    for split in SPLITS:
        if (out_dir / split).exists() and not written.get(split):  # it may be a download
            raise FileExistsError(f"{out_dir / split} was not written by generate_games; choose another folder")
    counts = {**DEFAULT_GAMES, **(games or {})}
    size = named_size(size, SIZES)
    generated = GeneratedGames(seed, counts, size, task_types)
    made = {split: generated.of(split) for split in SPLITS if counts[split]}
    provenance = {
        "schema_version": 1,
        "size": asdict(size),
        "games": counts,
        "task_types": list(task_types),
        "seed": seed,
    }
    with scratch_folder(out_dir.absolute()) as temporary:  # beside the folder, also if that is "."
        for split, split_games in made.items():
            _write_split(temporary / split, split_games)
        write_text(temporary / _PROVENANCE_FILE, json.dumps(provenance, indent=2) + "\n")
        flush_everything()
        _publish(temporary, out_dir, [*made, _PROVENANCE_FILE], overwrite)
    return {split: out_dir / split for split in made}


def _write_split(folder: Path, games: Iterable[Game]) -> None:
    for number, game in enumerate(games):
        trial = folder / game.name / f"trial_{number:05d}"
        trial.mkdir(parents=True)
        (trial / GAME_FILE).write_text(export_game(game), encoding="utf-8")
        (trial / TRAJECTORY_FILE).write_text(trajectory_file(game), encoding="utf-8")


def _refuse_taken(out_dir: Path, overwrite: bool) -> None:
    if not overwrite and out_dir.exists() and any(out_dir.iterdir()):
        raise FileExistsError(
            f"{out_dir} exists and is not empty; choose another folder, or replace the generated games in it (--force; "
            "in Python overwrite=True)"
        )


def _publish(temporary: Path, out_dir: Path, names: Iterable[str], overwrite: bool) -> None:
    """Move finished files into place and remove all games of an earlier set.

    Of two processes that write to one folder, one gets an error.
    """
    out_dir.mkdir(exist_ok=True)
    with exclusive_path(out_dir.absolute()):
        _refuse_taken(out_dir, overwrite)  # another process may have written meanwhile
        for split in SPLITS:
            if (out_dir / split).exists():
                delete_folder(renamed_to_delete(out_dir / split))  # a process that dies meanwhile leaves no half of it
        for name in names:
            os.replace(temporary / name, out_dir / name)
