"""From a path to the files of steps that it stands for: which update each is, and whose format it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.storage.schema import BATCH_COLUMNS, FORMATS, SUFFIXES, StorageError, suffix_of
from hgpo.storage.tables import parsed_line

_RUN_FILES = ("metrics.jsonl", "metrics.superseded.jsonl")
"""Files of a run directory that end like rollouts and hold none."""

_KEYS_OF_DUMPS = {"input", "output"}
_LISTS_OF_TRAJECTORIES = {"messages", "steps"}


class NoRolloutsError(StorageError):
    """There are no files of steps, perhaps not yet."""


@dataclass(frozen=True, slots=True)
class StepFile:
    """A file whose steps were compared with each other.

    Attributes:
        update: Which update they belong to.
        path: Where it is.
        format: "hgpo", this project's columns in parquet or JSONL; "verl", a rollout dump of verl or verl-agent; or
            "trajectories", one trajectory a line.
    """

    update: int
    path: Path
    format: str


def find_step_files(path: Path, format: str = "auto") -> list[StepFile]:
    """The files that `path` stands for, by update: itself, those of a folder, or those of a run directory.

    The update is the number in a file's name (00040.parquet, verl's 40.jsonl); files are counted from 1 in the order of
    their names where one has none or two have the same.

    Args:
        path: a file, a folder of files or a run directory; the metrics of a run are no steps.
        format: "hgpo", "verl" or "trajectories" for all files; "auto": each file's own.

    Raises:
        ValueError: an unknown format.
        NoRolloutsError: (a StorageError) there are no files of steps.
        StorageError: nothing is there, or a file of another kind.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if path.is_file():
        suffix_of(path)
        files = [path]
    elif path.exists():
        files = sorted(file for file in _entries(path) if file.suffix.lower() in SUFFIXES and not file.is_dir())
    else:
        raise StorageError(f"no such file or folder: {path}")
    files = [file for file in files if file.name not in _RUN_FILES]
    if format == "verl":
        files = [file for file in files if suffix_of(file) == ".jsonl"]
    if not files:
        raise NoRolloutsError(_nothing(path, format))
    updates = zip(_numbers(files), files, strict=True)
    found = [StepFile(update, file, _format(file) if format == "auto" else format) for update, file in updates]
    return sorted(found, key=lambda file: file.update)


def chosen_updates(path: Path, files: Sequence[StepFile], updates: Sequence[int]) -> list[StepFile]:
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


def _entries(path: Path) -> Iterable[Path]:
    """What lies where `path` keeps its rollouts: a run directory has a folder of its own for them, perhaps not yet."""
    if (path / "rollouts").is_dir():
        return (path / "rollouts").iterdir()
    return () if (path / "config.toml").is_file() else path.iterdir()


def _nothing(path: Path, format: str) -> str:
    """Why there may be no files."""
    if format == "verl":
        return f"{path} holds no dumps of verl (*.jsonl); set trainer.rollout_data_dir to have verl write them"
    return (
        f"{path} holds no rollouts (*.parquet, *.jsonl); a run stores some after its first update, and none where "
        "rollout.store_every is 0"
    )


def _numbers(files: Sequence[Path]) -> list[int]:
    """The number in each file's name; 1, 2, … where they do not tell the files apart."""
    numbers = [int(digits[1]) for file in files if (digits := re.search(r"(\d{1,9})\D*$", file.stem))]
    return numbers if len(set(numbers)) == len(files) else list(range(1, len(files) + 1))


def _format(file: Path) -> str:
    """What the first readable row tells: one that is a step of this project makes it this project's."""
    keys, lists = _first_keys(file)
    if keys >= set(BATCH_COLUMNS):
        return "hgpo"
    if lists & _LISTS_OF_TRAJECTORIES:
        return "trajectories"
    return "verl" if keys >= _KEYS_OF_DUMPS and suffix_of(file) == ".jsonl" else "hgpo"


def _first_keys(file: Path) -> tuple[set[str], set[str]]:
    """The keys of the first row that can be read, and those of lists; none where no row can, which its reader tells."""
    if suffix_of(file) == ".parquet":
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError):
            return set(), set()
        return set(schema.names), {field.name for field in schema if pa.types.is_list(field.type)}
    with file.open("rb") as lines:
        rows = (row for row in map(parsed_line, lines) if isinstance(row, dict))
        first = next(rows, {})
    return set(first), {key for key, value in first.items() if isinstance(value, list)}
