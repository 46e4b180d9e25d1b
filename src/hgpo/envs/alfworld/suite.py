"""ALFWorld as a task suite: the real games where they are installed, generated ones everywhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.expert.expert import Expert
from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.game_folders import find_games, split_folder
from hgpo.envs.alfworld.generation.floor_plans import SIZE_EXAMPLE, SIZES, Size, named_size
from hgpo.envs.alfworld.generation.json_lines import read_games
from hgpo.envs.alfworld.generation.splits import (
    DEFAULT_GAMES,
    SPLITS,
    GeneratedGames,
    check_task_types,
)
from hgpo.envs.alfworld.split_tasks import SplitTasks, tasks_of_games
from hgpo.envs.base import Task
from hgpo.envs.options import LARGEST_SEED, check_counts, check_path, check_type, check_whole_number
from hgpo.envs.splits import Splits

DATA_VARIABLE = "ALFWORLD_DATA"


class AlfworldSuite(Splits[SplitTasks]):
    """Tasks of one or more splits, each found or generated when first asked for. `alfworld_suite` builds it."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, in a fixed order, each exactly once. `ValueError` names an unknown split."""
        return self._split(split).tasks

    def skipped(self, split: str) -> Mapping[str, int]:
        """How many games of a split are left out, by reason."""
        return self._split(split).skipped

    def expert(self) -> Expert:
        """A player to learn from: what it does depends on no more than a short memory can hold."""
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

    `data_dir` holds real games as `alfworld-download` leaves them, or files that `generate_games` wrote; `~`
    and `$VARIABLES` in it are filled in. Without it, games are generated: of `size` ("small" is the default), as
    many per split as `games` or the `..._games` options say (default 2500, 200 and 200; 0 leaves a split out), by
    `seed` (default 0). If none of these options is given either, the folder that $ALFWORLD_DATA names is used if
    there is one.

    `task_types` limits the tasks to some of the six types. Games marked as unsolvable are left out and counted in
    `skipped`. The order of a split's tasks never changes: real games by the SHA-256 of `<task folder>/<trial>`, so
    that the first n are a fair sample; generated ones as they were generated or written. Episodes have no step limit
    of their own: the trainer sets one, or wrap the suite in `hgpo.envs.limit.LimitedSuite`.
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
    """The folder with `~` and `$VARIABLES` filled in, so that a recipe can say `data_dir = "$ALFWORLD_DATA"`."""
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
