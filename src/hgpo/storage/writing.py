"""Tables of steps to files: one row per step, parquet or JSONL, with a schema version.

Text columns hold untrusted model and environment output; whoever shows them escapes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.files import naming, whole_file
from hgpo.storage.problems import StorageError
from hgpo.storage.schema import SCHEMA_VERSION, VERSION_KEY


def write_table(path: Path, table: pa.Table) -> None:
    """Write any table with the schema version, by way of a temporary file, so that readers never see half of it.

    A name in .jsonl makes JSONL, any other parquet; whoever takes the name from a user asks `suffix_of` first.
    Parquet pages carry the format's own checksums, which `hgpo.storage.parquet` verifies.

    Raises:
        StorageError: JSON has no form for a column (see `check_writable`), or parquet has none.
    """
    check_writable(path, table.schema)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), VERSION_KEY: str(SCHEMA_VERSION).encode()})
    with whole_file(path) as partial:
        if path.suffix.lower() == ".jsonl":
            partial.write_text("".join(json_lines(path, table)), encoding="utf-8")
        else:
            try:
                pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
            except pa.ArrowException as error:
                raise StorageError(f"{path} cannot be written as parquet: {error}") from error


def append_rows(path: Path, table: pa.Table) -> None:
    """Append the rows of `table` to a JSONL file, on disk before this returns.

    A process that is killed while it writes may leave half a line.
    """
    with naming(path), path.open("a", encoding="utf-8") as lines:
        lines.writelines(json_lines(path, table))
        lines.flush()
        os.fsync(lines.fileno())


def json_lines(path: Path, table: pa.Table) -> Iterator[str]:
    """A table's rows as lines of JSON, each with the schema version.

    Raises:
        StorageError: a column is not UTF-8.
    """
    for row in _rows(path, table):
        yield json.dumps({"schema_version": SCHEMA_VERSION, **row}, ensure_ascii=False) + "\n"


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
