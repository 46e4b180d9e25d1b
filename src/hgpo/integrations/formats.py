"""Rollouts of this project or of another trainer, read by the same call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import pyarrow as pa

from hgpo.integrations.verl.dumps import DumpColumns, read_dumps
from hgpo.storage.tables import (
    BATCH_COLUMNS,
    OPTIONAL_BATCH_COLUMNS,
    StorageError,
    place_of_row,
    read_table,
    rollout_files,
    suffix_of,
)

FORMATS = ("auto", "hgpo", "verl")


def read_rollouts(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> pa.Table:
    """All steps in `path`, with this project's column names.

    Args:
        path: a file, a folder of files or a run directory.
        format: "hgpo": parquet or JSONL with one column per name (`read_table`); "verl": rollout dumps of verl or
            verl-agent (`read_dumps`); "auto": "verl" if the first JSONL row has `input` and `output`, else "hgpo".
        columns: columns to read from other keys than usual, {"observation": "room"}: those of `StepBatch`, for "verl"
            those of `DumpColumns`.

    Raises:
        ValueError: an unknown format or column, or nothing that could be read; the message names file and place.
    """
    columns = columns or {}
    if _chosen_format(path, format) == "verl":
        return read_dumps(path, DumpColumns.with_keys(columns))
    _check_names(columns)
    return _renamed(read_table(path), columns, path)


def row_places(path: Path, table: pa.Table, format: str = "auto") -> Callable[[int], str]:
    """Where each row of `table`, which `read_rollouts(path, format)` returned, was read from, for messages.

    Returns:
        a function from a row's number to "rollouts.jsonl line 3"; it may read the files once more.
    """
    if _chosen_format(path, format) == "hgpo":
        return lambda row: place_of_row(path, row)

    def place(row: int) -> str:
        file = path / table["dump_file"][row].as_py() if path.is_dir() else path
        return f"{file} line {table['dump_line'][row].as_py()}"

    return place


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


def detect_format(path: Path) -> str:
    """The format of the first file: "verl" if the first row is a verl dump's, else "hgpo"."""
    file = rollout_files(path)[0]
    if suffix_of(file) == ".parquet":
        return "hgpo"
    with file.open(encoding="utf-8", errors="replace") as lines:
        line = next((line for line in lines if line.strip()), "")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "hgpo"  # whose reader says which line is damaged
    return "verl" if isinstance(row, dict) and {"input", "output"} <= row.keys() else "hgpo"


def _chosen_format(path: Path, format: str) -> str:
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    return detect_format(path) if format == "auto" else format


def _check_names(columns: Mapping[str, str]) -> None:
    """Refuse columns that nobody reads: a slip of the pen would otherwise leave the real column out unnoticed."""
    known = (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS)
    of_dumps = [column.name for column in fields(DumpColumns)]
    for name in columns:
        if name in known:
            continue
        remedy = "; it is one of verl's dumps: add --format verl (format='verl')" if name in of_dumps else ""
        raise ValueError(f"no column {name} is read from rollouts{remedy}; columns: {', '.join(known)}")


def _renamed(table: pa.Table, columns: Mapping[str, str], path: Path) -> pa.Table:
    """The table with the named columns taken from others."""
    for name, key in columns.items():
        if key not in table.column_names:
            raise StorageError(
                f"{path}: no column {key} to read {name} from; there are {', '.join(table.column_names)}"
            )
    values = {name: table.column(key) for name, key in columns.items()}
    table = table.drop_columns([name for name in columns if name in table.column_names])
    for name, column in values.items():
        table = table.append_column(name, column)
    return table
