"""Stored columns as the estimators' input.

A value that a row lacks, whether its key is absent or null:

- in `action` and `next_observation`, it is None: there was no action, nothing came after;
- in `penalty`, `value`, `success` (or `won`) and `prompt`, it is an error if any row has one, because no number may be
  made up for it; a column without a single value counts as not there;
- in a column that is needed, it is an error.

`hgpo.storage.trajectory_files` leaves out what is an error here.

Shapes: N rows, U distinct values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from hgpo.columns import ColumnError
from hgpo.steps import StepBatch
from hgpo.storage.schema import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS, StorageError

IN_ALL_ROWS_OR_NONE = {
    "penalty": "write 0 where nothing is subtracted",
    "value": "write the critic's estimate of every step",
    "success": "write true or false in every row",
    "prompt": "write the prompt of every step",
}
"""Optional columns in which a missing value has no meaning, and what to write instead."""

_REPETITIVE = ("group", "trajectory", "observation", "action", "next_observation")  # prompts are nearly all different


def step_batch_from_table(
    table: pa.Table, source: str = "rollouts", place: Callable[[int], str] | None = None
) -> StepBatch:
    """The estimators' input from stored columns; this project's rollouts say `won` for `success`.

    Args:
        table: one row per step. See the module for what a missing value means.
        source: what the table is called in messages.
        place: where a row of the table was read from, such as "rollouts.jsonl line 3"; only called for messages.

    Raises:
        StorageError: a column is missing, or has values in some rows only.
        ValueError: as `StepBatch.from_columns`; with `place`, a `StorageError` that names it.
    """
    stored = stored_columns(table, source)
    if not table.num_rows:
        raise StorageError(f"{source}: no rows; one row per step is needed")
    named = place or (lambda row: f"{source} row {row}")
    values = {}
    for name, key in stored.items():
        column = table.column(key)
        if name in IN_ALL_ROWS_OR_NONE and column.null_count:
            first = int(np.argmax(column.is_null().to_numpy()))
            raise StorageError(missing_value(name, key, first).message_at(named))
        values[name] = _values(column, name, key, named)
    try:
        return StepBatch.from_columns(**values)
    except ColumnError as error:
        if place is None:
            raise
        raise StorageError(error.message_at(place)) from error


def stored_columns(table: pa.Table, source: str = "rollouts") -> dict[str, str]:
    """The columns of a batch that the table has, and the name under which it has each.

    Raises:
        StorageError: one that is needed is missing.
    """
    names = [name for name in (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS) if name in table.column_names]
    stored = {name: name for name in names if name not in IN_ALL_ROWS_OR_NONE or not _is_empty(table.column(name))}
    if "success" not in stored and "won" in table.column_names and not _is_empty(table.column("won")):
        stored["success"] = "won"
    missing = [name for name in BATCH_COLUMNS if name not in stored]
    if missing:
        raise StorageError(
            f"{source}: no column {', '.join(missing)}; needed are {', '.join(BATCH_COLUMNS)}, "
            f"optional {', '.join(OPTIONAL_BATCH_COLUMNS)}"
        )
    return stored


def missing_value(name: str, key: str, row: int) -> ColumnError:
    """The error about a row without a value in one of `IN_ALL_ROWS_OR_NONE`, which is stored as `key`."""
    remedy = f"{IN_ALL_ROWS_OR_NONE[name]}, or leave the column out of all rows"
    return ColumnError(key, row, f"missing value, though other rows have one; {remedy}")


def _is_empty(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count == len(column))


def _values(column: pa.ChunkedArray, name: str, key: str, place: Callable[[int], str]) -> Any:
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not column.null_count:  # with nulls, integers would become floats, and None NaN
        return column.to_numpy()
    repeats = _is_text(column.type) or pa.types.is_dictionary(column.type)
    try:
        return _shared_values(column) if name in _REPETITIVE and repeats and len(column) else column.to_pylist()
    except UnicodeDecodeError as error:
        row = _first_undecodable(column)
        raise StorageError(f"{place(row)}: column {key!r} is not UTF-8 ({error}); write it as UTF-8") from error


def _shared_values(column: pa.ChunkedArray) -> np.ndarray:
    """The column as objects, equal values being one object: less memory, and faster to compare, than one per row."""
    encoded = (column if pa.types.is_dictionary(column.type) else column.dictionary_encode()).unify_dictionaries()
    values = [*encoded.chunk(0).dictionary.to_pylist(), None]  # the None is for missing values
    value_U = np.empty(len(values), dtype=object)
    value_U[:] = values
    indices = [chunk.indices.cast(pa.int64()).fill_null(len(values) - 1).to_numpy() for chunk in encoded.chunks]
    shared_N: np.ndarray = value_U[np.concatenate(indices)]
    return shared_N


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _first_undecodable(column: pa.ChunkedArray) -> int:
    for row, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return row
    raise AssertionError("only called for a column that is not UTF-8")
