"""Finds the games in folders of `game.tw-pddl` files, as `alfworld-download` and `generate_games` leave them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache, partial
from pathlib import Path

from hgpo.envs.alfworld.env import AlfworldEnv
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.split_tasks import UNSOLVABLE, SplitTasks
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE, load_game, read_bounded
from hgpo.envs.base import Task

_SOLVABLE = re.compile(rb'"solvable":\s*true\b')


def split_folder(data_dir: Path, split: str) -> Path | None:
    """The folder of a split: `<data_dir>/<split>` or, as downloaded, `<data_dir>/json_<version>/<split>`."""
    folders = (data_dir / split, *sorted(data_dir.glob(f"json_*/{split}")))
    return next((folder for folder in folders if next(folder.rglob(GAME_FILE), None) is not None), None)


def find_games(folder: Path, split: str, task_types: Collection[str]) -> SplitTasks:
    """Every playable game in a split's folder once, in `fair_order`.

    Left out and counted, as the original environment leaves them out: games not marked as solvable, and tasks about
    sliced objects or of other types than the six. A task's id is its path, `<split>/<task folder>/<trial>`, its kind
    is what the task folder's name begins with.
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
    """Names sorted by their SHA-256, so that the first n are a fair sample, whatever the names and the disk's order.

    By name, all games of a task type would come together: the first 3,000 training games would hold few that ask for
    two objects, and the first 100 of a split one task type only.
    """
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def _reason_to_skip(path: Path, name: str, kind: str) -> str | None:
    if kind not in TASK_TYPES:
        return "other task type"
    if "Sliced" in name:
        return "sliced object"
    # A search instead of parsing: it takes a tenth of the time, and within a JSON string the quotes would be escaped.
    return None if _SOLVABLE.search(read_bounded(path)) else UNSOLVABLE


@lru_cache(maxsize=512)
def _load_cached(path: str) -> Game:
    return load_game(path)


def _make_env(path: str) -> AlfworldEnv:
    return AlfworldEnv(_load_cached(path))
