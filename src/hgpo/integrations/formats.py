"""Rollouts of this project or of another trainer, read by the same call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgpo.integrations.verl.dumps import DumpColumns, read_dumps
from hgpo.rollout.storage import StorageError, read_table, rollout_files

FORMATS = ("auto", "hgpo", "verl")


def read_rollouts(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> pa.Table:
    """All steps in `path`, with this project's column names.

    Args:
        path: a file, a folder of files or a run directory.
        format: "hgpo": parquet or JSONL with one column per name (`read_table`); "verl": rollout dumps of verl or
            verl-agent (`read_dumps`); "auto": "verl" if the first JSONL row has `input` and `output`, else "hgpo".
        columns: columns to read from other keys than usual, {"observation": "room"}: see `DumpColumns` for "verl".

    Raises:
        ValueError: an unknown format or column, or nothing that could be read; the message names file and place.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    columns = columns or {}
    if format == "auto":
        format = detect_format(path)
    if format == "verl":
        return read_dumps(path, DumpColumns.with_keys(columns))
    return _renamed(read_table(path), columns, path)


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
    if file.suffix == ".parquet":
        return "hgpo"
    with file.open(encoding="utf-8", errors="replace") as lines:
        line = next((line for line in lines if line.strip()), "")
    try:
        row = json.loads(line)
    except ValueError:
        return "hgpo"  # whose reader says which line is damaged
    return "verl" if isinstance(row, dict) and {"input", "output"} <= row.keys() else "hgpo"


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
