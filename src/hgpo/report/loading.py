"""Where steps come from: a run directory, this project's rollouts, verl's rollout dumps. One file is one update.

Files are listed first and read one at a time, so that a long run never lies in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hgpo.report.reading import Notice, count_rows, read_file
from hgpo.report.repair import whole_trajectories
from hgpo.report.verl_dumps import DumpReader, is_verl_dump, read_verl_dump
from hgpo.steps import StepBatch
from hgpo.storage.schema import SUFFIXES

_TEXTS = ("response", "task_type", "fault")


@dataclass(frozen=True, slots=True)
class Training:
    """How the steps were trained on, where that is known.

    Attributes:
        estimator, options, gamma: what advantages were computed with. metrics: the rows of metrics.jsonl.

    Example: `Training("hgpo", {"history_length": 2}, 0.95)`.
    """

    estimator: str = "hgpo"
    options: Mapping[str, Any] = field(default_factory=dict)
    gamma: float = 0.95
    metrics: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """A file whose steps were compared with each other, and which update it is.

    Example: `UpdateFile(40, Path("runs/quickstart/rollouts/00040.parquet"), 1396)`.
    """

    update: int
    path: Path
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class UpdateSteps:
    """The readable steps of one file.

    Attributes:
        update: its number. batch: the steps, N of them.
        texts: response, task_type and fault where the file has them, N values each.
        notices: what was left out.

    Example: `read_update(list_updates(Path("runs/quickstart"))[0]).texts["response"][0]` is "go to countertop 1".
    """

    update: int
    batch: StepBatch | None
    texts: Mapping[str, list[Any]]
    notices: tuple[Notice, ...]


def list_updates(path: Path) -> list[UpdateFile]:
    """The rollout files that `path` stands for, by update.

    The update is the number in a file's name (00040.parquet, verl's 40.jsonl); files are counted from 1 where a name
    has none or two have the same.

    Raises:
        ValueError: nothing is there, or a folder without rollouts.
    """
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path} is neither parquet nor JSONL; give a run directory, a .parquet or a .jsonl file")
        return [UpdateFile(_number(path) or 1, path, count_rows(path))]
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}")
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if folder == path:  # metrics beside a run that stored no rollouts are no rollouts
        files = [file for file in files if not file.name.startswith("metrics.")]
    numbers = [_number(file) for file in files]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(1, len(files) + 1))
    listed = [UpdateFile(number or 0, file, count_rows(file)) for number, file in zip(numbers, files, strict=True)]
    return sorted(listed, key=lambda file: file.update)


def chosen_updates(path: Path, files: Sequence[UpdateFile], updates: Sequence[int]) -> list[UpdateFile]:
    """The files of these updates.

    Raises:
        ValueError: `path` has no rollouts of one of them; the message names those it has.
    """
    missing = sorted(set(updates) - {file.update for file in files})
    if missing:
        raise ValueError(
            f"{path} holds no rollouts of update {', '.join(map(str, missing))}; it holds those of "
            f"{number_ranges([file.update for file in files])}"
        )
    return [file for file in files if file.update in set(updates)]


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers in few words: `number_ranges([1, 2, 3, 7, 10])` is "1 to 3, 7, 10"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges)


def read_update(file: UpdateFile, read_dump: DumpReader | None = None) -> UpdateSteps:
    """Read one file; what is damaged becomes notices, see `hgpo.report.repair`.

    `read_dump` is for verl's dumps; without it they are files without the columns that are needed.
    """
    is_dump = read_dump is not None and is_verl_dump(file.path)
    rows = read_verl_dump(file.path, read_dump) if read_dump and is_dump else read_file(file.path)
    batch, kept, notices = whole_trajectories(rows, file.path.name)
    texts: dict[str, list[Any]] = {
        name: [rows.columns[name][row] for row in kept] for name in _TEXTS if name in rows.columns
    }
    return UpdateSteps(file.update, batch, texts, (*rows.notices, *notices))


def _number(path: Path) -> int | None:
    digits = re.search(r"(\d{1,9})\D*$", path.stem)
    return int(digits[1]) if digits else None
