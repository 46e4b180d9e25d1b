"""ALFWorld as a task suite: real games from a folder, or else generated ones."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.engine import AlfworldEnv
from hgpo.envs.alfworld.expert import Expert
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import SIZES, Size
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES, GeneratedGames
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE, GameFileError, is_solvable, load_game
from hgpo.envs.base import SPLITS, Count, Seed, Task, TaskSplits, check_task_types, expanded_path, named_size

_OTHER_TYPE = "pick_and_place_with_movable_recep"
_TRAJECTORY = "traj_data.json"


def split_folder(data_dir: Path, split: str) -> Path | None:
    """The folder of a split: `<data_dir>/<split>` or, as downloaded, `<data_dir>/json_<version>/<split>`."""
    folders = (data_dir / split, *sorted(data_dir.glob(f"json_*/{split}")))
    return next((folder for folder in folders if next(folder.rglob(GAME_FILE), None) is not None), None)


def find_games(folder: Path, split: str, task_types: Collection[str], skipped: Counter[str]) -> tuple[Task, ...]:
    """Every playable game in a split's folder, in `fair_order`.

    As in the original environment, games not marked as solvable, games with sliced objects and games of other types
    than the six are left out; `skipped` counts them by reason. A task's id is `<split>/<task folder>/<trial>`.
    Its kind is the task type at the start of the task folder's name, or else the `task_type` in `traj_data.json`, or
    else the type of the game's goal.

    Raises:
        GameFileError: a file is damaged; the message names it.
    """
    tasks: list[Task] = []
    paths = {path.parent.relative_to(folder).as_posix(): path for path in folder.rglob(GAME_FILE)}
    for name in fair_order(paths):
        path = paths[name]
        kind = _type_outside(path, name)
        if kind is not None and kind not in TASK_TYPES:
            skipped[f"other task type ({kind})"] += 1
        elif "Sliced" in name:
            skipped["sliced object"] += 1
        elif not is_solvable(path):
            skipped["not marked solvable"] += 1
        else:
            kind = _load_cached(str(path)).goal.task_type if kind is None else kind
            if kind in task_types:
                tasks.append(Task(f"{split}/{name}", kind, partial(_make_env, str(path))))
    return tuple(tasks)


def fair_order(names: Iterable[str]) -> list[str]:
    """Names sorted by their SHA-256, so that the first n are a fair sample.

    In alphabetical order the first 100 games of a split would have one task type only.
    """
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def _type_outside(path: Path, name: str) -> str | None:
    """The task type that a folder's name or `traj_data.json` states; None if neither does."""
    for part in reversed(name.split("/")):
        kind = part.partition("-")[0]
        if kind in TASK_TYPES or kind == _OTHER_TYPE:
            return kind
    stated = path.with_name(_TRAJECTORY)
    try:
        return str(json.loads(stated.read_bytes())["task_type"]) if stated.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise GameFileError(
            f"{stated}: its task_type cannot be read ({error!r}); repair the file or remove it"
        ) from error


@lru_cache(maxsize=512)
def _load_cached(path: str) -> Game:
    return load_game(path)


def _make_env(path: str) -> AlfworldEnv:
    return AlfworldEnv(_load_cached(path))


_expert = partial(Expert, recall=False)  # a policy needs only a short memory to imitate it


def alfworld_suite(
    data_dir: str | Path | None = None,
    *,
    size: str | Mapping[str, Any] | Size | None = None,
    train_games: Count | None = None,
    valid_seen_games: Count | None = None,
    valid_unseen_games: Count | None = None,
    task_types: list[str] | tuple[str, ...] = TASK_TYPES,
    seed: Seed | None = None,
) -> TaskSplits:
    """A suite of real or generated household games, with the splits train, valid_seen and valid_unseen.

    `data_dir` is a folder that `alfworld-download` or `generate_games` wrote; `~` and `$VARIABLES` are expanded.
    Without it, games are generated: `size` (default "small") is their size, `seed` (default 0) the random seed, and the
    `..._games` options give the number of games per split (default 2500, 200 and 200; 0 leaves a split out). If none of
    these options is given and the variable ALFWORLD_DATA is set, its folder is used.

    `task_types` limits the tasks to some of the six types. Unsolvable games are left out and counted in `skipped`. The
    order of tasks is fixed: games in files by the SHA-256 of `<task folder>/<trial>` (see `fair_order`),
    others in the order of generation. Episodes have no step limit; see `hgpo.envs.wrappers.LimitedSuite`.
    """
    check_task_types(task_types, TASK_TYPES)
    options = {
        "size": size,
        "seed": seed,
        "train_games": train_games,
        "valid_seen_games": valid_seen_games,
        "valid_unseen_games": valid_unseen_games,
    }
    chosen = [name for name, value in options.items() if value is not None]
    if data_dir is None and not chosen:
        data_dir = os.environ.get("ALFWORLD_DATA") or None
    if data_dir is not None and chosen:
        raise ValueError(
            f"{', '.join(chosen)}: only for generated games; leave out these options or data_dir={data_dir} (a "
            f"recipe's options are replaced with environment.options='{{data_dir = \"{data_dir}\"}}')"
        )
    if data_dir is not None:
        return _suite_on_disk(expanded_path(data_dir), task_types)
    named = {"train": train_games, "valid_seen": valid_seen_games, "valid_unseen": valid_unseen_games}
    counts = {split: DEFAULT_GAMES[split] if count is None else count for split, count in named.items()}
    made = GeneratedGames(seed or 0, counts, named_size(size or "small", SIZES), task_types)
    make = {split: partial(_generated_tasks, made, split) for split in SPLITS if counts[split]}
    return TaskSplits(make, expert=_expert)


def _generated_tasks(made: GeneratedGames, split: str) -> tuple[Task, ...]:
    """Tasks in the order of generation, with the ids `<split>/<number>-<name>`."""
    return tuple(
        Task(f"{split}/{number:04d}-{game.name}", game.goal.task_type, partial(AlfworldEnv, game))
        for number, game in enumerate(made.of(split))
    )


def _suite_on_disk(data_dir: Path, task_types: Sequence[str]) -> TaskSplits:
    folders = {split: folder for split in SPLITS if (folder := split_folder(data_dir, split)) is not None}
    if not folders:
        raise FileNotFoundError(
            f"{data_dir}: no games here; looked for {', '.join(SPLITS)} as folders with game.tw-pddl files (also under "
            "json_2.1.1 and the like). `alfworld-download` gets the real games, `hgpo generate-games` generates games"
        )
    skipped: dict[str, Counter[str]] = {split: Counter() for split in folders}
    make = {split: partial(find_games, folder, split, task_types, skipped[split]) for split, folder in folders.items()}
    return TaskSplits(make, expert=_expert, skipped=skipped)
