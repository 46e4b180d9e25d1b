"""The files of steps in a path: which update each belongs to, and its format."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.storage.schema import BATCH_COLUMNS, FORMATS, SUFFIXES, StorageError, suffix_of
from hgpo.storage.tables import parsed_rows

_METRICS = ("metrics.jsonl", "metrics.superseded.jsonl")
"""Files of a run directory that have the suffix of rollouts and contain none."""

_KEYS_OF_DUMPS = {"input", "output"}
_LISTS_OF_TRAJECTORIES = {"messages", "conversations", "steps"}


class NoRolloutsError(StorageError):
    """The path contains no files of steps (a run may not have written any yet)."""


@dataclass(frozen=True, slots=True)
class StepFile:
    """A file whose steps are one batch: advantages compare steps within a file, never between files.

    Attributes:
        update: The update that its steps were collected for, or the number of the file.
        path: The file.
        format: "hgpo", this project's columns in parquet or JSONL; "verl", a rollout dump of verl or verl-agent; or
            "trajectories", one trajectory per line.
        unit: What `update` counts: "update"; "file" if the names of several files are not a series of numbers; "" if
            it counts nothing, because the name of the only file is not one that training gives.
    """

    update: int
    path: Path
    format: str
    unit: str = "update"


def find_step_files(
    path: Path | str,
    format: str = "auto",
    updates: Sequence[int] | None = None,
    columns: Collection[str] = (),
) -> list[StepFile]:
    """The files of steps in `path`, by update.

    The update is the number in a file's name (00040.parquet, verl's 40.jsonl). Files whose names have no number, or the
    same one, are numbered from 1 in the order of their names.

    Args:
        path: A file, a folder of files or a run directory. The metrics of a run are not steps. A .json file
            is read only if `path` is the file itself.
        format: "hgpo", "verl" or "trajectories" for all files; "auto": the format of each file is taken from the names
            in its first row. A row with a list `messages` or `steps` is a trajectory; one with `input` and `output` in
            JSONL is verl's, unless it has the columns of a step.
        updates: Only these; None for all.
        columns: Columns that are read from other keys; `messages` or `steps` among them selects "trajectories".

    Raises:
        ValueError: Unknown format, or `path` has no file of one of `updates`; the message names those it has.
        NoRolloutsError: (a StorageError) `path` contains no files of steps.
        StorageError: `path` does not exist, or is a file with another suffix.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    if format == "auto" and _LISTS_OF_TRAJECTORIES & set(columns):
        format = "trajectories"
    path = Path(path)
    if path.is_file():
        suffix_of(path)
        files = [path]
    elif path.exists():
        files = sorted(file for file in _entries(path) if file.suffix.lower() in SUFFIXES and not file.is_dir())
    else:
        raise StorageError(f"no such file or folder: {path}")
    files = [file for file in files if file.name not in _METRICS]
    if format == "verl":
        files = [file for file in files if suffix_of(file) == ".jsonl"]
    if not files:
        raise NoRolloutsError(
            f"{path} contains no dumps of verl (*.jsonl); set trainer.rollout_data_dir to have verl write them"
            if format == "verl"
            else f"{path} contains no rollouts (*.parquet, *.jsonl; *.json only if named); a run stores some after "
            "its first update, and none where rollout.store_every is 0"
        )
    numbered = number_files(files, format)
    found = [file.update for file in numbered]
    if missing := sorted(set(updates or ()) - set(found)):
        raise ValueError(
            f"{path} contains no rollouts of update {', '.join(map(str, missing))}; it contains those of "
            f"{number_ranges(found)}"
        )
    return [file for file in numbered if updates is None or file.update in updates]


def number_files(files: Sequence[Path], format: str) -> list[StepFile]:
    """Number `files` as `find_step_files` numbers the files of a folder; `format` has the same meaning."""
    unit = _unit(files)
    numbered = sorted(zip(_numbers(files), files, strict=True))
    return [StepFile(number, file, _format(file) if format == "auto" else format, unit) for number, file in numbered]


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers as ranges: `number_ranges([1, 2, 3, 7, 10])` is "1 to 3, 7, 10"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges)


def _entries(path: Path) -> Iterable[Path]:
    """The entries of the folder that contains the rollouts: `rollouts/` in a run directory, which may not exist yet."""
    if (path / "rollouts").is_dir():
        return (path / "rollouts").iterdir()
    return () if (path / "config.toml").is_file() else path.iterdir()


def _numbers(files: Sequence[Path]) -> list[int]:
    """The number in each file's name; 1, 2, … if these are not distinct."""
    numbers = [int(digits[1]) for file in files if (digits := re.search(r"(\d{1,9})\D*$", file.stem))]
    return numbers if len(set(numbers)) == len(files) else list(range(1, len(files) + 1))


def _unit(files: Sequence[Path]) -> str:
    """What the numbers of the files count, see `StepFile`. "gpt-4o.json" has a number but belongs to no update."""
    if len(files) == 1:
        return "update" if re.fullmatch(r"(.*(update|step)[-_ ]?)?\d{1,9}", files[0].stem, re.IGNORECASE) else ""
    found = [re.fullmatch(r"(.*?)\d{1,9}(\D*)", file.stem) for file in files]
    return "update" if None not in found and len({one.groups() for one in found if one}) == 1 else "file"


def _format(file: Path) -> str:
    keys, lists = _first_keys(file)
    if keys >= set(BATCH_COLUMNS):
        return "hgpo"
    if lists & _LISTS_OF_TRAJECTORIES:
        return "trajectories"
    return "verl" if keys >= _KEYS_OF_DUMPS and suffix_of(file) == ".jsonl" else "hgpo"


def _first_keys(file: Path) -> tuple[set[str], set[str]]:
    """The keys of the first readable row, and those whose values are lists; the reader reports unreadable rows."""
    if suffix_of(file) == ".parquet":
        try:
            with pq.ParquetFile(file) as parquet:
                schema = parquet.schema_arrow
                texts = [f.name for f in schema if f.name in _LISTS_OF_TRAJECTORIES and not pa.types.is_nested(f.type)]
                first = next(parquet.iter_batches(1, columns=texts)).to_pylist()[0] if texts else {}
        except (pa.ArrowException, OSError, StopIteration):
            return set(), set()
        lists = {field.name for field in schema if pa.types.is_nested(field.type)}
        return set(schema.names), lists | {key for key, value in first.items() if _is_list(value)}
    first = next((row for _, row in parsed_rows(file) if isinstance(row, dict)), {})
    return set(first), {key for key, value in first.items() if _is_list(value)}


def _is_list(value: object) -> bool:
    """Whether it is a list, or a list as JSON text."""
    return isinstance(value, list) or (isinstance(value, str) and re.match(r"\s*\[\s*\{", value) is not None)
