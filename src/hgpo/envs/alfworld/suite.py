"""ALFWorld as a task suite: real games from a folder, or else generated ones."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.env import AlfworldEnv
from hgpo.envs.alfworld.expert import Expert
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import SIZE_EXAMPLE, SIZES, Size, named_size
from hgpo.envs.alfworld.generation.game_files import read_games
from hgpo.envs.alfworld.generation.splits import (
    DEFAULT_GAMES,
    SPLITS,
    GeneratedGames,
    check_task_types,
)
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE, load_game, read_bounded
from hgpo.envs.base import LARGEST_SEED, Splits, Task, check_counts, check_path, check_type, check_whole_number

_SOLVABLE = re.compile(rb'"solvable":\s*true\b')


def split_folder(data_dir: Path, split: str) -> Path | None:
    """The folder of a split: `<data_dir>/<split>` or, as downloaded, `<data_dir>/json_<version>/<split>`."""
    folders = (data_dir / split, *sorted(data_dir.glob(f"json_*/{split}")))
    return next((folder for folder in folders if next(folder.rglob(GAME_FILE), None) is not None), None)


def find_games(folder: Path, split: str, task_types: Collection[str]) -> SplitTasks:
    """Every playable game in a split's folder once, in `fair_order`.

    Games not marked as solvable, and tasks with sliced objects or of other types than the six are skipped and counted,
    as in the original environment. A task's id is its path, `<split>/<task folder>/<trial>`; its kind is the first part
    of the task folder's name.
    """
    tasks: list[Task] = []
    skipped: Counter[str] = Counter()
    paths = {path.parent.relative_to(folder).as_posix(): path for path in folder.rglob(GAME_FILE)}
    for name in fair_order(paths):
        path = paths[name]
        kind = name.partition("-")[0]
        reason = _reason_to_skip(path, name, kind)
        if reason:
            skipped[reason] += 1
        elif kind in task_types:
            tasks.append(Task(f"{split}/{name}", kind, partial(_make_env, str(path))))
    return SplitTasks(tuple(tasks), skipped)


def fair_order(names: Iterable[str]) -> list[str]:
    """Names sorted by their SHA-256, so that the first n are a fair sample.

    In alphabetical order the first 100 games of a split would have one task type only.
    """
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def _reason_to_skip(path: Path, name: str, kind: str) -> str | None:
    if kind not in TASK_TYPES:
        return "other task type"
    if "Sliced" in name:
        return "sliced object"
    # A search takes a tenth of the time of parsing; within a JSON string the quotes would be escaped.
    return None if _SOLVABLE.search(read_bounded(path)) else UNSOLVABLE


@lru_cache(maxsize=512)
def _load_cached(path: str) -> Game:
    return load_game(path)


def _make_env(path: str) -> AlfworldEnv:
    return AlfworldEnv(_load_cached(path))


UNSOLVABLE = "not marked solvable"


@dataclass(frozen=True, slots=True)
class SplitTasks:
    """The tasks of a split.

    Attributes:
        tasks: in a fixed order.
        skipped: reason -> number of games left out.
    """

    tasks: tuple[Task, ...]
    skipped: Mapping[str, int]


def tasks_of_games(split: str, games: Iterable[Game], task_types: Collection[str] = TASK_TYPES) -> SplitTasks:
    """The tasks of solvable games, in order; a task's id is `<split>/<number>-<name>`."""
    tasks: list[Task] = []
    skipped: Counter[str] = Counter()
    for number, game in enumerate(games):
        if not game.solvable:
            skipped[UNSOLVABLE] += 1
        elif game.goal.task_type in task_types:
            name = f"{split}/{number:04d}-{game.name}"
            tasks.append(Task(name, game.goal.task_type, partial(AlfworldEnv, game)))
    return SplitTasks(tuple(tasks), skipped)


DATA_VARIABLE = "ALFWORLD_DATA"


class AlfworldSuite(Splits[SplitTasks]):
    """Tasks of one or more splits, each found or generated on first use. `alfworld_suite` builds it."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        return self._split(split).tasks

    def skipped(self, split: str) -> Mapping[str, int]:
        """The number of games of a split that are left out, by reason."""
        return self._split(split).skipped

    def expert(self) -> Expert:
        """The expert for demonstrations; its commands need a short memory only."""
        return Expert(order="likely", recall=False)


def alfworld_suite(
    data_dir: str | Path | None = None,
    *,
    size: str | Size | Mapping[str, Any] | None = None,
    games: Mapping[str, int] | None = None,
    train_games: int | None = None,
    valid_seen_games: int | None = None,
    valid_unseen_games: int | None = None,
    task_types: Sequence[str] = TASK_TYPES,
    seed: int | None = None,
) -> AlfworldSuite:
    """A suite of real or generated household games, with the splits train, valid_seen and valid_unseen.

    `data_dir` is a folder of `alfworld-download` or of `generate_games`; `~` and `$VARIABLES` are expanded. Without it,
    games are generated: of `size` (default "small"), with the number of games per split from `games` or the
    `..._games` options (default 2500, 200 and 200; 0 leaves a split out), by `seed` (default 0). If none of these
    options is given, the folder in $ALFWORLD_DATA is used if the variable is set.

    `task_types` limits the tasks to some of the six types. Unsolvable games are left out and counted in `skipped`. The
    order of tasks is fixed: real games by the SHA-256 of `<task folder>/<trial>` (see `fair_order`),
    others in the order of generation. Episodes have no step limit; see `hgpo.envs.wrappers.LimitedSuite`.
    """
    named = {"train": train_games, "valid_seen": valid_seen_games, "valid_unseen": valid_unseen_games}
    _check_types(data_dir, size, games, named, seed)
    check_task_types(task_types)
    requested = {**(games or {}), **{split: count for split, count in named.items() if count is not None}}
    generated = {"size": size, "seed": seed, "games": requested or None}
    chosen = [name for name, value in generated.items() if value is not None]
    if data_dir is None and not chosen:
        data_dir = os.environ.get(DATA_VARIABLE) or None
    if data_dir is None:
        return _generated_suite(size or "small", {**DEFAULT_GAMES, **requested}, task_types, seed or 0)
    if chosen:
        raise ValueError(
            f"{', '.join(chosen)}: only for generated games; leave out these options or data_dir={data_dir}"
        )
    return _suite_on_disk(_expanded(data_dir), task_types)


def _check_types(data_dir: object, size: object, games: object, named: Mapping[str, object], seed: object) -> None:
    check_path("data_dir", data_dir)
    check_type("size", size, (str, Size, Mapping), f"one of {', '.join(SIZES)}, or numbers as in {SIZE_EXAMPLE}")
    check_counts("games", games, "{ train = 100, valid_unseen = 20 }")
    for split, count in named.items():
        check_whole_number(f"{split}_games", count)
    check_whole_number("seed", seed, most=LARGEST_SEED)


def _expanded(data_dir: str | Path) -> Path:
    """The folder with `~` and `$VARIABLES` expanded, as in `data_dir = "$ALFWORLD_DATA"`."""
    text = os.path.expanduser(os.path.expandvars(str(data_dir)))
    if "$" in text:
        raise FileNotFoundError(
            f"data_dir = {str(data_dir)!r}: the variable is not set. Real games: pip install alfworld, run "
            "alfworld-download, then export ALFWORLD_DATA=its folder"
        )
    return Path(text)


def _generated_suite(
    size: str | Size | Mapping[str, Any],
    counts: Mapping[str, int],
    task_types: Sequence[str],
    seed: int,
) -> AlfworldSuite:
    made = GeneratedGames(seed, counts, named_size(size), task_types)

    def generate(split: str) -> SplitTasks:
        return tasks_of_games(split, made.of(split))

    return AlfworldSuite({split: partial(generate, split) for split in SPLITS if counts[split]})


def _suite_on_disk(data_dir: Path, task_types: Sequence[str]) -> AlfworldSuite:
    find: dict[str, Callable[[], SplitTasks]] = {}
    for split in SPLITS:
        folder = split_folder(data_dir, split)
        file = data_dir / f"{split}.jsonl"
        if folder is not None:
            find[split] = partial(find_games, folder, split, task_types)
        elif file.is_file():
            find[split] = partial(_read_tasks, file, split, task_types)
    if not find:
        raise FileNotFoundError(
            f"{data_dir}: no games here; looked for {', '.join(SPLITS)} as folders with game.tw-pddl files (also under "
            "json_2.1.1 and the like) and as .jsonl files. `alfworld-download` gets the real games, "
            "`hgpo generate-games` makes some"
        )
    return AlfworldSuite(find)


def _read_tasks(file: Path, split: str, task_types: Sequence[str]) -> SplitTasks:
    return tasks_of_games(split, read_games(file), task_types)
