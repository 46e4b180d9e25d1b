"""Generated games as files for `alfworld_suite(data_dir)`, with the layout and format of the published games."""

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
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES, SPLITS, generate_splits
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE
from hgpo.envs.alfworld.tw_pddl.writing import TRAJECTORY_FILE, export_game, trajectory_file
from hgpo.utils.files import exclusive_folder, flush_everything, scratch_folder, write_text

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

    They are the games of a suite with the same options, each in
    `<split>/<task>-<object>-None-<target>-<layout>/trial_<number>/game.tw-pddl`, which ALFWorld reads too.

    A folder that is not empty is a `FileExistsError` unless `overwrite` is true; then its generated games are replaced
    and other files are kept. Split folders that this function did not write are never replaced.
    """
    out_dir = Path(out_dir)
    if out_dir.exists() and not out_dir.is_dir():
        raise FileExistsError(f"{out_dir} is a file; the games go into a folder, so choose another name")
    _refuse_taken(out_dir, overwrite)
    if not (out_dir / _PROVENANCE_FILE).exists():
        for split in SPLITS:
            if (out_dir / split).exists():  # these may be downloads
                raise FileExistsError(f"{out_dir / split} was not written by generate_games; choose another folder")
    counts = {**DEFAULT_GAMES, **(games or {})}
    made = generate_splits(seed, counts, size=size, task_types=task_types)
    provenance = {
        "schema_version": 1,
        "size": asdict(named_size(size)),
        "games": {split: len(split_games) for split, split_games in made.items()},
        "task_types": list(task_types),
        "seed": seed,
    }
    splits = [split for split in SPLITS if made[split]]
    with scratch_folder(out_dir) as temporary:
        for split in splits:
            _write_split(temporary / split, made[split])
        write_text(temporary / _PROVENANCE_FILE, json.dumps(provenance, indent=2) + "\n")
        flush_everything()
        _publish(temporary, out_dir, [*splits, _PROVENANCE_FILE], overwrite)
    return {split: out_dir / split for split in splits}


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
    with exclusive_folder(out_dir):
        _refuse_taken(out_dir, overwrite)  # another process may have written meanwhile
        for split in SPLITS:
            if (out_dir / split).exists():
                shutil.rmtree(out_dir / split)
        for name in names:
            os.replace(temporary / name, out_dir / name)
