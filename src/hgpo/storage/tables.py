"""Tables of steps as files: one row per step, parquet or JSONL, with a schema version.

Text columns hold untrusted model and environment output; whoever shows them escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.files import whole_file
from hgpo.storage.joining import join_tables
from hgpo.storage.json_lines import filled_lines, read_json_lines
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    OPTIONAL_BATCH_COLUMNS,
    SCHEMA_VERSION,
    SUFFIXES,
    VERSION_KEY,
    StorageError,
    suffix_of,
)
from hgpo.storage.step_batches import step_batch_from_table

__all__ = [
    "BATCH_COLUMNS",
    "OPTIONAL_BATCH_COLUMNS",
    "SCHEMA_VERSION",
    "VERSION_KEY",
    "StorageError",
    "check_writable",
    "place_of_row",
    "read_table",
    "rollout_files",
    "step_batch_from_table",
    "suffix_of",
    "write_table",
]


def write_table(path: Path, table: pa.Table) -> None:
    """Write any table with the schema version, by way of a temporary file, so that readers never see half of it.

    A name in .jsonl makes JSONL, any other parquet; whoever takes the name from a user asks `suffix_of` first.

    Raises:
        StorageError: JSON has no form for a column (see `check_writable`), or parquet has none.
    """
    check_writable(path, table.schema)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), VERSION_KEY: str(SCHEMA_VERSION).encode()})
    with whole_file(path) as partial:
        if path.suffix.lower() == ".jsonl":
            rows = ({"schema_version": SCHEMA_VERSION, **row} for row in _rows(path, table))
            partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        else:
            try:
                pq.write_table(table, partial, compression="zstd")
            except pa.ArrowException as error:
                raise StorageError(f"{path} cannot be written as parquet: {error}") from error


def check_writable(path: Path, schema: pa.Schema) -> None:
    """Ask before a long computation whether its result can be written to `path`.

    Raises:
        StorageError: `path` is to be JSONL, and JSON has no form for the values of a column, such as times or bytes.
    """
    if path.suffix.lower() != ".jsonl":
        return
    for field in schema:
        if not _has_json_form(field.type):
            raise StorageError(
                f"{path}: JSON has no form for column {field.name!r} ({field.type}); write .parquet, or leave it out"
            )


def read_table(path: Path) -> pa.Table:
    """All steps in `path`: a parquet or JSONL file, a folder of them, or a run directory.

    The columns are all that any row of any file has; a row without one of them has null there. Columns of several files
    become one even where one file has whole numbers and the other fractions, or text of another Arrow type.

    Raises `StorageError` for what is missing, empty, damaged, or of another schema version, and for columns whose
    kinds do not go together.
    """
    files = rollout_files(path)
    return join_tables([_read_file(file) for file in files], files)


def rollout_files(path: Path) -> list[Path]:
    """The rollout files that `path` stands for, in order of name."""
    if path.is_file():
        suffix_of(path)
        return [path]
    if not path.exists():
        raise StorageError(f"no such file or folder: {path}")
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not files:
        raise StorageError(f"{folder} holds no rollouts (*.parquet, *.jsonl)")
    return files


def place_of_row(path: Path, row: int) -> str:
    """Where row `row` of `read_table(path)` stands, for messages: "a.jsonl line 3" or "a.parquet row 2".

    Lines are counted from 1 and rows of parquet from 0. The files are read once more, so ask only when something is
    wrong.
    """
    for file in rollout_files(path):
        if suffix_of(file) == ".jsonl":
            for line in filled_lines(file):
                if row == 0:
                    return f"{file} line {line}"
                row -= 1
        elif row < (count := pq.read_metadata(file).num_rows):
            return f"{file} row {row}"
        else:
            row -= count
    return str(path)


def _read_file(path: Path) -> pa.Table:
    if suffix_of(path) == ".jsonl":
        return read_json_lines(path)
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} cannot be read as parquet: {error}") from error
    version = (table.schema.metadata or {}).get(VERSION_KEY)
    if version is not None and version != str(SCHEMA_VERSION).encode():
        text = version.decode("utf-8", "replace")
        raise StorageError(f"{path} has schema version {text}; this release reads {SCHEMA_VERSION}")
    if not table.num_rows:
        raise StorageError(f"{path} holds no rows; write it again or remove it")
    return table


def _rows(path: Path, table: pa.Table) -> Iterator[dict[str, Any]]:
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = table.column(name).to_pylist()
        except UnicodeDecodeError as error:
            raise StorageError(f"{path}: column {name!r} is not UTF-8 ({error}); write .parquet") from error
    yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _has_json_form(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _has_json_form(kind.value_type)
    if types.is_struct(kind):
        return all(_has_json_form(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _has_json_form(kind.value_type)
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
    return bool(is_text or is_number or types.is_boolean(kind) or types.is_null(kind))
