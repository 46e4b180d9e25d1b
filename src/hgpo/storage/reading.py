"""Steps from a path: all of them, where every row is needed, or one file's as far as it can be read.

Training on half of a damaged file is wrong, so `read_steps` refuses it. An inspector is what one opens to see what
happened, so `read_update` keeps the rest and says what is missing. Both read files by the same rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.steps import StepBatch
from hgpo.storage.column_keys import check_columns, renamed
from hgpo.storage.discover import StepFile, find_step_files
from hgpo.storage.joining import join_tables
from hgpo.storage.json_lines import read_json_lines
from hgpo.storage.parquet import read_parquet
from hgpo.storage.problems import Notice, Problems, StorageError, place_of
from hgpo.storage.schema import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS, UPDATE_KEY, suffix_of
from hgpo.storage.trajectory_files import read_trajectories
from hgpo.storage.verl_dumps import read_dump
from hgpo.storage.whole_trajectories import whole_trajectories

_TEXTS = ("response", "task_type", "fault")
_SHOWN = (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS, *_TEXTS, "won", "terminated", "truncated")


@dataclass(frozen=True, slots=True, eq=False)
class StoredSteps:
    """All steps of some files.

    Attributes:
        table: One row per step. Its columns are all that any row of any file has; a row without one has null there.
        files: In their order, each file and the numbers of its rows in it.
    """

    table: pa.Table
    files: Sequence[tuple[Path, Sequence[int]]]

    def place(self, row: int) -> str:
        """Where a row of the table was read from, for messages: "rollouts.jsonl line 3"."""
        for file, numbers in self.files:
            if row < len(numbers):
                return place_of(file, numbers[row])
            row -= len(numbers)
        raise IndexError(row)


@dataclass(frozen=True, slots=True, eq=False)
class UpdateSteps:
    """The readable steps of one file.

    Attributes:
        update: Its number.
        batch: The steps, N of them; None where there are none.
        texts: response, task_type and fault where the file has them, N values each.
        notices: What was left out.
    """

    update: int
    batch: StepBatch | None
    texts: Mapping[str, list[Any]]
    notices: tuple[Notice, ...]


def read_rollouts(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> pa.Table:
    """All steps in `path` as a table with this project's column names; see `read_steps`."""
    return read_steps(path, format, columns).table


def read_steps(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> StoredSteps:
    """All steps in `path`; `hgpo.storage.step_batches.step_batch_from_table` makes the estimators' input of them.

    Args:
        path: a file, a folder of files or a run directory.
        format: "hgpo": parquet or JSONL with one column per name; "verl": rollout dumps of verl or verl-agent;
            "trajectories": one trajectory a line; "auto": what the first row's names tell. One with `messages` or
            `steps` is a trajectory, one of JSONL with `input` and `output` is verl's, unless it is a step.
        columns: columns to read from other keys than usual, {"observation": "room"}: those of `StepBatch`, for "verl"
            those of `hgpo.storage.verl_dumps.COLUMNS`, for "trajectories" `hgpo.storage.trajectory_files.KEYS`.

    Raises:
        ValueError: an unknown format or column.
        StorageError: (a ValueError) something is missing, empty, damaged or of another schema version, or the columns
            of two files do not go together; the message names file and place.
    """
    files = find_step_files(path, format)
    read = [_read(file, columns or {}, Problems(file.path, strict=True)) for file in files]
    table = join_tables([table for table, _ in read], [file.path for file in files])
    return StoredSteps(table, [(file.path, numbers) for file, (_, numbers) in zip(files, read, strict=True)])


def read_update(file: StepFile, columns: Mapping[str, str] | None = None) -> UpdateSteps:
    """The whole trajectories of one file as far as it can be read; what is damaged becomes notices.

    Raises:
        ValueError: an unknown column in `columns`, see `read_steps`.
    """
    problems = Problems(file.path, strict=False)
    batch, texts, notices = None, {}, []
    try:
        table, numbers = _read(file, columns or {}, problems, _SHOWN)
        if table.num_rows:
            batch, table = whole_trajectories(table, numbers, problems)
            texts = {name: table.column(name).to_pylist() for name in _TEXTS if name in table.column_names}
    except StorageError as error:
        notices = [error.notice]
    return UpdateSteps(file.update, batch, texts, (*problems.notices(), *notices))


def count_rows(file: Path) -> int:
    """About how many rows a file has, without reading their content; 0 where that cannot be told."""
    try:
        if suffix_of(file) == ".jsonl":
            with file.open("rb") as lines:
                return sum(1 for _ in lines)
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _read(
    file: StepFile, columns: Mapping[str, str], problems: Problems, wanted: Collection[str] | None = None
) -> tuple[pa.Table, Sequence[int]]:
    """The rows of one file and their numbers; of this project's format only the `wanted` columns, None for all."""
    check_columns(columns, file.format)
    table: pa.Table
    numbers: Sequence[int]
    if file.format == "verl":
        table, numbers = read_dump(file.path, columns, problems)
    elif file.format == "trajectories":
        table, numbers = read_trajectories(file.path, columns, problems)
    else:
        read_file = read_json_lines if suffix_of(file.path) == ".jsonl" else read_parquet
        table, numbers = read_file(file.path, problems, wanted and {*wanted, *columns.values()})
        _check_update(file, table.schema.metadata or {})
        table = renamed(table, columns, file.path) if table.num_rows else table
    if not table.num_rows and not problems.rows_are_lost:
        raise StorageError("no rows; write it again or remove it", file.path)
    return table, numbers


def _check_update(file: StepFile, metadata: Mapping[bytes, bytes]) -> None:
    """Refuse a file that training wrote under another number: it has changed places with another one."""
    written = metadata.get(UPDATE_KEY, b"").decode("ascii", "replace")
    if written and file.path.stem == f"{file.update:05d}" and written != str(file.update):
        raise StorageError(f"holds the steps of update {written}, whatever its name says; rename it", file.path)
