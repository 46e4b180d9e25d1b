"""Stored steps as batches: one file is one batch, in any format.

`find_step_files` lists the files of a path, one per update. `read_batch` reads one of them and raises at the first
damaged row, because training on half of a file is wrong. `read_intact` keeps the undamaged trajectories and reports
what it left out, so that a damaged file can be inspected. Both follow the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.columns import ColumnError, IntArray
from hgpo.steps import StepBatch
from hgpo.storage import trajectory_files, verl_dumps
from hgpo.storage.discover import StepFile
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    KEY_COLUMNS,
    NEEDED_COLUMNS,
    OPTIONAL_BATCH_COLUMNS,
    UPDATE_KEY,
    Notice,
    Problems,
    StorageError,
    place_of,
    suffix_of,
)
from hgpo.storage.step_batches import step_batch_from_table, undamaged_trajectories
from hgpo.storage.tables import read_json_lines, read_parquet

_READ = {
    "hgpo": (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS),
    "verl": tuple(verl_dumps.COLUMNS),
    "trajectories": tuple(dict.fromkeys((*trajectory_files.KEYS, *trajectory_files.STEP_KEYS))),
}
_FILES = {"hgpo": "rollouts", "verl": "dumps of verl", "trajectories": "files of trajectories"}


@dataclass(frozen=True, slots=True, eq=False)
class StoredBatch:
    """The steps of one file, N of them.

    Attributes:
        update: The update that they were collected for.
        path: The file.
        batch: The estimators' input.
        table: The stored columns of the same rows, in the same order.
        observed: With the stored observations, if those of `batch` were replaced by state keys.
    """

    update: int
    path: Path
    batch: StepBatch
    table: pa.Table
    observed: StepBatch | None = None

    def values(self, name: str, rows: Sequence[int] | IntArray) -> list[Any]:
        """The values of a stored column in some rows; None for each row if the file lacks the column."""
        if name not in self.table.column_names:
            return [None] * len(rows)
        return list(self.table.column(name).take(pa.array(rows, pa.int64())).to_pylist())


def read_batch(file: StepFile, columns: Mapping[str, str] | None = None) -> StoredBatch:
    """All steps of one file, with all of its columns.

    Args:
        file: A file found by `find_step_files`.
        columns: Column -> the key to read it from, such as {"observation": "room"}. Columns are those of `StepBatch`;
            in the format "verl" `hgpo.storage.verl_dumps.COLUMNS`, in "trajectories" `KEYS` and `STEP_KEYS` of
            `hgpo.storage.trajectory_files`.

    Raises:
        ValueError: `columns` has an unknown column.
        StorageError: (a ValueError) The file is empty, damaged, incomplete or of another schema version; the message
            names file, place and remedy.
    """
    table, numbers = _read(file, columns or {}, Problems(file.path, strict=True))
    try:
        batch = step_batch_from_table(table, file.path)
    except ColumnError as error:
        raise StorageError(error.message_at(lambda row: place_of(file.path, numbers[row]))) from error
    return StoredBatch(file.update, file.path, batch, table)


def read_intact(
    file: StepFile, columns: Mapping[str, str] | None = None
) -> tuple[StoredBatch | None, tuple[Notice, ...]]:
    """The undamaged trajectories of one file and what was left out; equal to `read_batch` for an undamaged file.

    Returns:
        The steps, None if there are none, and one notice per kind of problem.

    Raises:
        ValueError: `columns` has an unknown column.
    """
    problems = Problems(file.path, strict=False)
    stored, notices = None, []
    try:
        table, numbers = _read(file, columns or {}, problems)
        if table.num_rows:
            batch, table = undamaged_trajectories(table, numbers, problems)
            stored = StoredBatch(file.update, file.path, batch, table) if batch is not None else None
    except StorageError as error:
        notices = [error.notice]
    return stored, (*problems.notices(), *notices)


def count_rows(file: Path) -> int:
    """Approximate number of rows of a file, without reading their content; 0 if it cannot be determined."""
    try:
        if suffix_of(file) == ".parquet":
            return int(pq.read_metadata(file).num_rows)
        if suffix_of(file) == ".json":  # an array may have any number of lines
            return 0
        with file.open("rb") as lines:
            return sum(1 for _ in lines)
    except (pa.ArrowException, OSError):
        return 0


def parse_columns(assignments: Sequence[str]) -> dict[str, str]:
    """Convert ["observation=room"] to {"observation": "room"}.

    Raises:
        ValueError: An assignment lacks its name, `=` or key, or a name occurs twice.
    """
    columns: dict[str, str] = {}
    for assignment in assignments:
        name, _, key = assignment.partition("=")
        if not name or not key:
            raise ValueError(f"expected NAME=KEY, got {assignment!r}")
        if name in columns:
            raise ValueError(f"column {name} is given twice: {columns[name]} and {key}")
        columns[name] = key
    return columns


def _read(file: StepFile, columns: Mapping[str, str], problems: Problems) -> tuple[pa.Table, Sequence[int]]:
    """The rows of one file, with all of its columns, and their numbers."""
    _check_columns(columns, file.format)
    table: pa.Table
    numbers: Sequence[int]
    if file.format == "verl":
        table, numbers = verl_dumps.read_dump(file.path, columns, problems)
    elif file.format == "trajectories":
        table, numbers = trajectory_files.read_trajectories(file.path, columns, problems)
    else:
        if suffix_of(file.path) == ".parquet":
            table = read_parquet(file.path)
            numbers = range(table.num_rows)
        else:
            keys, needed = ({columns.get(name, name) for name in names} for names in (KEY_COLUMNS, NEEDED_COLUMNS))
            table, numbers = read_json_lines(file.path, problems, keys, needed)
        _check_update(file, table.schema.metadata or {})
        table = _renamed(table, columns, file.path) if table.num_rows else table
    if not table.num_rows and not problems.rows_are_lost:
        raise StorageError("no rows; write it again or remove it", file.path)
    return table, numbers


def _check_columns(columns: Mapping[str, str], format: str) -> None:
    """Reject unknown columns: a misspelled one would silently leave the real column unchanged."""
    for name in columns:
        if name not in _READ[format]:
            others = " or ".join(other for other, known in _READ.items() if name in known)
            remedy = f"; add --format {others} to read a file of that format" if others else ""
            raise ValueError(
                f"no column {name} is read from {_FILES[format]}{remedy}; columns: {', '.join(_READ[format])}"
            )
    if "reward" in columns and "final_reward" in columns:
        raise ValueError("give either reward, of each step, or final_reward, of the whole trajectory, not both")


def _check_update(file: StepFile, metadata: Mapping[bytes, bytes]) -> None:
    """Reject a file that training wrote under the number of another update."""
    written = metadata.get(UPDATE_KEY, b"").decode("ascii", "replace")
    if written and file.path.stem == f"{file.update:05d}" and written != str(file.update):
        raise StorageError(f"contains the steps of update {written}, unlike its name; rename it", file.path)


def _renamed(table: pa.Table, columns: Mapping[str, str], file: Path) -> pa.Table:
    """The table with some columns taken from others."""
    for name, key in columns.items():
        if key not in table.column_names:
            raise StorageError(
                f"no column {key} for {name}; the file has {', '.join(table.column_names)}: name one of these", file
            )
    taken = {name: table.column(key) for name, key in columns.items()}
    return pa.table({name: table.column(name) for name in table.column_names} | taken) if taken else table
