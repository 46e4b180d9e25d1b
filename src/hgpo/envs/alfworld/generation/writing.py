"""Writes generated games to a folder that `alfworld_suite(data_dir)` reads.

Two formats: "jsonl" has one file per split and one game per line; "tw-pddl" has one folder per game, laid out and
written as the published games are, so that ALFWorld itself plays them too.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import Size, named_size
from hgpo.envs.alfworld.generation.json_lines import SCHEMA_VERSION, write_games
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES, SPLITS, generate_splits
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE
from hgpo.envs.alfworld.tw_pddl.writing import TRAJECTORY_FILE, export_game, trajectory_file
from hgpo.files import exclusive_folder, flush_everything, scratch_folder, write_text

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
    """Write generated games to a folder and return, per split, the file or folder that holds them.

    They are the games that a suite with the same options generates. `format` "jsonl" writes `<split>.jsonl`,
    "tw-pddl" writes `<split>/<task>-<object>-None-<target>-<layout>/trial_<number>/game.tw-pddl`.

    A folder that is there and not empty is a `FileExistsError` unless `overwrite` is true; then its generated games
    are replaced and other files are left alone. A split folder that holds other games is never replaced.
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
    """Split folders without the note that generated ones have may be somebody's download."""
    there = [split for split in SPLITS if (out_dir / split).exists()]
    if there and _format_of(out_dir) != "tw-pddl":
        raise FileExistsError(f"{out_dir / there[0]} was not written by generate_games; choose another folder")


def _format_of(out_dir: Path) -> str | None:
    """The format of the generated games in a folder, None where there are none."""
    try:
        provenance = json.loads((out_dir / _PROVENANCE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FileExistsError(f"{out_dir / _PROVENANCE_FILE} is damaged ({error}); choose another folder") from error
    return str(provenance.get("format", "jsonl")) if isinstance(provenance, dict) else None


def _publish(temporary: Path, out_dir: Path, names: Iterable[str], overwrite: bool) -> None:
    """Move finished files into place; nothing of an earlier set must stay behind, whatever its format and splits.

    Of two processes that write to one folder, one is refused.
    """
    out_dir.mkdir(exist_ok=True)
    with exclusive_folder(out_dir):
        _refuse_taken(out_dir, overwrite)  # by a process that was a moment faster
        for split in SPLITS:
            (out_dir / f"{split}.jsonl").unlink(missing_ok=True)
            if (out_dir / split).exists():
                shutil.rmtree(out_dir / split)
        for name in names:
            os.replace(temporary / name, out_dir / name)
