"""Generated games as files in a folder for `alfworld_suite(data_dir)`, in one of two formats.

"jsonl": one file per split, `<split>.jsonl`, with the JSON object of a `Game` and its schema_version on each line;
`can_contain` is written as receptacle kind -> object kinds. "tw-pddl": one folder per game, with the layout and format
of the published games, which ALFWorld reads.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.actions import Layout
from hgpo.envs.alfworld.game import TASK_TYPES, Game, GameObject, Goal, Receptacle
from hgpo.envs.alfworld.generation.floor_plans import Size, named_size
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES, SPLITS, generate_splits
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE, MAX_BYTES, GameFileError
from hgpo.envs.alfworld.tw_pddl.writing import TRAJECTORY_FILE, export_game, trajectory_file
from hgpo.utils.files import exclusive_folder, flush_everything, scratch_folder, write_text

SCHEMA_VERSION = 1
_LONGEST_MESSAGE = 400


def write_games(path: str | Path, games: Iterable[Game]) -> None:
    """Write games, one per line, atomically."""
    write_text(Path(path), "".join(json.dumps(game_to_json(game), sort_keys=True) + "\n" for game in games))


def read_games(path: str | Path) -> tuple[Game, ...]:
    """All games of a file. `GameFileError` names the file, the line and the problem."""
    path = Path(path)
    games = []
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_BYTES + 1), b""), start=1):
            try:
                games.append(game_from_json(_read_line(line)))
            except (ValueError, KeyError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                message = f"{path}, line {number}: {what[:_LONGEST_MESSAGE]}; write the file again with generate_games"
                raise GameFileError(message) from error
    return tuple(games)


def _read_line(line: bytes) -> object:
    if len(line) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes, which no game has")
    try:
        data = json.loads(line.decode("utf-8"))
        if b"\\u" in line:
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start})") from error
    except UnicodeEncodeError as error:
        raise ValueError("an escape sequence is an unpaired surrogate") from error
    except RecursionError:
        raise ValueError("nested too deep for a game") from None
    return data


def game_to_json(game: Game) -> dict[str, Any]:
    """A game as JSON-compatible values."""
    data = {"schema_version": SCHEMA_VERSION, **asdict(game)}
    for thing in data["objects"]:
        del thing["also_inside"]  # only real games state it
        thing["properties"] = sorted(thing["properties"])
    data["can_contain"] = {
        place: sorted(kind for other, kind in game.can_contain if other == place)
        for place in sorted({place for place, _ in game.can_contain})
    }
    plain: dict[str, Any] = json.loads(json.dumps(data))  # lists instead of tuples
    return plain


def game_from_json(data: object) -> Game:
    """The game that `game_to_json` wrote; `ValueError` for invalid content, `KeyError` for a missing key."""
    data = _table(data, "the line")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {data.get('schema_version')!r}, this version reads {SCHEMA_VERSION}")
    goal_data = _table(data["goal"], "'goal'")
    goal = Goal(**{name: _text(goal_data, name) for name in ("task_type", "object_kind", "target_kind")})
    if goal.task_type not in TASK_TYPES:
        raise ValueError(f"unknown task_type {goal.task_type!r}")
    can_contain = _table(data["can_contain"], "'can_contain'")
    game = Game(
        name=_text(data, "name"),
        task=_text(data, "task"),
        goal=goal,
        receptacles=tuple(_receptacle_from_json(item) for item in _tables(data, "receptacles")),
        objects=tuple(_object_from_json(item) for item in _tables(data, "objects")),
        can_contain=frozenset((place, kind) for place in can_contain for kind in _texts(can_contain, place)),
        agent_location=_text(data, "agent_location"),
        locations=_texts(data, "locations"),
        walkthrough=_texts(data, "walkthrough"),
        solvable=_flag(data, "solvable"),
    )
    Layout.of(game)  # rejects repeated names and ids and unknown receptacles
    return game


def _receptacle_from_json(data: Mapping[str, Any]) -> Receptacle:
    texts = {name: _text(data, name) for name in ("id", "name", "kind", "location")}
    return Receptacle(**texts, openable=_flag(data, "openable"), opened=_flag(data, "opened"))


def _object_from_json(data: Mapping[str, Any]) -> GameObject:
    return GameObject(
        id=_text(data, "id"),
        name=_text(data, "name"),
        kind=_text(data, "kind"),
        receptacles=_texts(data, "receptacles"),
        location=None if data["location"] is None else _text(data, "location"),
        inside=None if data["inside"] is None else _text(data, "inside"),
        properties=frozenset(_texts(data, "properties")),
    )


def _table(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def _tables(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [_table(value, f"an entry of {name!r}") for value in _list(data, name)]


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data[name]
    if not isinstance(value, list):
        raise ValueError(f"{name!r} is {value!r}, not a list")
    return value


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is {value!r}, not a string")
    return value


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _list(data, name)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name!r} holds something that is not a string")
    return tuple(values)


def _flag(data: Mapping[str, Any], name: str) -> bool:
    value = data[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} is {value!r}, not true or false")
    return value


FORMATS = ("jsonl", "tw-pddl")
_PROVENANCE_FILE = "generated.json"


def generate_games(
    out_dir: str | Path,
    *,
    size: str | Size | Mapping[str, Any] = "small",
    games: Mapping[str, int] | None = None,
    task_types: Sequence[str] = TASK_TYPES,
    seed: int = 0,
    format: str = "jsonl",
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write generated games to a folder and return the file or folder of each split.

    They are the games of a suite with the same options. `format` "jsonl" writes `<split>.jsonl`,
    "tw-pddl" writes `<split>/<task>-<object>-None-<target>-<layout>/trial_<number>/game.tw-pddl`.

    A folder that is not empty is a `FileExistsError` unless `overwrite` is true; then its generated games are replaced
    and other files are kept. A split folder with other games is never replaced.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r}; choose one of {', '.join(FORMATS)}")
    out_dir = Path(out_dir)
    if out_dir.exists() and not out_dir.is_dir():
        raise FileExistsError(f"{out_dir} is a file; the games go into a folder, so choose another name")
    _refuse_taken(out_dir, overwrite)
    _refuse_other_games(out_dir)
    counts = {**DEFAULT_GAMES, **(games or {})}
    made = generate_splits(seed, counts, size=size, task_types=task_types)
    provenance = {
        "schema_version": SCHEMA_VERSION,
        "format": format,
        "size": asdict(named_size(size)),
        "games": {split: len(split_games) for split, split_games in made.items()},
        "task_types": list(task_types),
        "seed": seed,
    }
    with scratch_folder(out_dir) as temporary:
        names = {split: split if format == "tw-pddl" else f"{split}.jsonl" for split in SPLITS if made[split]}
        for split, name in names.items():
            write = _write_folders if format == "tw-pddl" else write_games
            write(temporary / name, made[split])
        write_text(temporary / _PROVENANCE_FILE, json.dumps(provenance, indent=2) + "\n")
        flush_everything()
        _publish(temporary, out_dir, [*names.values(), _PROVENANCE_FILE], overwrite)
    return {split: out_dir / name for split, name in names.items()}


def _write_folders(folder: Path, games: Iterable[Game]) -> None:
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


def _refuse_other_games(out_dir: Path) -> None:
    """Reject split folders without `generated.json`, which may be downloads."""
    existing = [split for split in SPLITS if (out_dir / split).exists()]
    if existing and _format_of(out_dir) != "tw-pddl":
        raise FileExistsError(f"{out_dir / existing[0]} was not written by generate_games; choose another folder")


def _format_of(out_dir: Path) -> str | None:
    """The format of the generated games in a folder; None without any."""
    try:
        provenance = json.loads((out_dir / _PROVENANCE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FileExistsError(f"{out_dir / _PROVENANCE_FILE} is damaged ({error}); choose another folder") from error
    return str(provenance.get("format", "jsonl")) if isinstance(provenance, dict) else None


def _publish(temporary: Path, out_dir: Path, names: Iterable[str], overwrite: bool) -> None:
    """Move finished files into place and remove all games of an earlier set.

    Of two processes that write to one folder, one gets an error.
    """
    out_dir.mkdir(exist_ok=True)
    with exclusive_folder(out_dir):
        _refuse_taken(out_dir, overwrite)  # another process may have written meanwhile
        for split in SPLITS:
            (out_dir / f"{split}.jsonl").unlink(missing_ok=True)
            if (out_dir / split).exists():
                shutil.rmtree(out_dir / split)
        for name in names:
            os.replace(temporary / name, out_dir / name)
