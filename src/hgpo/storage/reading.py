"""The tables of several files as one.

Files may differ in how wide a number is, whether it is whole, how text is kept, and which columns they have (null where
a file has none). What is a number here and text there is an error, for equal ids would no longer be equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.steps import StepBatch
from hgpo.storage import trajectory_files, verl_dumps
from hgpo.storage.discover import StepFile, find_step_files
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    OPTIONAL_BATCH_COLUMNS,
    UPDATE_KEY,
    Notice,
    Problems,
    StorageError,
    place_of,
    suffix_of,
)
from hgpo.storage.tables import read_json_lines, read_parquet
from hgpo.storage.trajectory_files import read_trajectories, whole_trajectories
from hgpo.storage.verl_dumps import read_dump

_TRUTHS = ("success", "won", "reward", "penalty", "value")  # in these, true counts as 1, so that both may occur


def join_tables(tables: Sequence[pa.Table], files: Sequence[Path]) -> pa.Table:
    """All rows of `tables`, which were read from `files`, in order.

    Raises:
        StorageError: a column is of kinds that do not go together; names the column and two files.
    """
    if len(tables) == 1:
        return tables[0]
    plain = _plainly_typed(tables)
    try:
        return pa.concat_tables(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise StorageError(_disagreement(plain, files) or f"{files[0].parent}: {error}") from error


def _plainly_typed(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with dictionaries and views as text, and truths as numbers, in columns whose types differ."""
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    return [_retyped(table, types) for table in tables]


def _retyped(table: pa.Table, types: Mapping[str, set[pa.DataType]]) -> pa.Table:
    for place, field in enumerate(table.schema):
        kind = _plain_type(field.name, field.type, types[field.name])
        if kind != field.type:
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def _plain_type(name: str, kind: pa.DataType, others: set[pa.DataType]) -> pa.DataType:
    if others == {kind}:
        return kind
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_boolean(kind) and name in _TRUTHS and not others <= {kind, pa.null()}:
        return pa.int8()
    return kind


def _disagreement(tables: Sequence[pa.Table], files: Sequence[Path]) -> str | None:
    """The first column that cannot be joined, as a message."""
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        seen: dict[pa.DataType, int] = {}
        for place, table in enumerate(tables):
            if name not in table.column_names:
                continue
            kind = table.schema.field(name).type
            for other, first in seen.items() if kind not in seen else ():
                if not _join(tables[first].select([name]), table.select([name])):
                    return (
                        f"{files[place]}: column {name!r} is {kind}, but {other} in {files[first]}; write one kind of "
                        "value in all files: ids as text, numbers without quotes"
                    )
            seen.setdefault(kind, place)
    return None


def _join(first: pa.Table, second: pa.Table) -> bool:
    """Whether the two can be joined."""
    try:
        pa.concat_tables([first, second], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


# Columns that are read from other keys than usual.


_READ = {
    "hgpo": (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS),
    "verl": tuple(verl_dumps.COLUMNS),
    "trajectories": trajectory_files.KEYS,
}
_FILES = {"hgpo": "rollouts", "verl": "dumps of verl", "trajectories": "files of trajectories"}


def parse_columns(assignments: Sequence[str]) -> dict[str, str]:
    """["observation=room"] as {"observation": "room"}.

    Raises:
        ValueError: an assignment without name, `=` or key, or a name given twice.
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


def check_columns(columns: Mapping[str, str], format: str) -> None:
    """Refuse columns that nobody reads: a slip of the pen would otherwise leave the real column out unnoticed.

    Raises:
        ValueError: no such column is read from files of this format, or two are given of which one may be.
    """
    for name in columns:
        if name not in _READ[format]:
            remedy = _remedy(name) if format == "hgpo" else ""
            raise ValueError(
                f"no column {name} is read from {_FILES[format]}{remedy}; columns: {', '.join(_READ[format])}"
            )
    if "reward" in columns and "final_reward" in columns:
        raise ValueError("give either reward, of each step, or final_reward, of the whole trajectory, not both")


def _remedy(name: str) -> str:
    """What to add to have a column read that files of another format have."""
    if name in verl_dumps.COLUMNS:
        return "; it is one of verl's dumps: add --format verl (format='verl')"
    if name in trajectory_files.KEYS:
        return "; it is one of files with a trajectory a line: add --trajectories (format='trajectories')"
    return ""


def renamed(table: pa.Table, columns: Mapping[str, str], file: Path) -> pa.Table:
    """The table with some columns taken from others.

    Raises:
        StorageError: one of these others is not there.
    """
    for name, key in columns.items():
        if key not in table.column_names:
            there = ", ".join(table.column_names)
            raise StorageError(f"no column {key} to read {name} from; there are {there}", file)
    taken = {name: table.column(key) for name, key in columns.items()}
    table = table.drop_columns([name for name in columns if name in table.column_names])
    for name, column in taken.items():
        table = table.append_column(name, column)
    return table


# Steps from a path: all of them, where every row is needed, or one file's as far as it can be read.
#
# Training on half of a damaged file is wrong, so `read_steps` refuses it. An inspector is what one opens to see what
# happened, so `read_update` keeps the rest and says what is missing. Both read files by the same rules.


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
