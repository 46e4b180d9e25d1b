"""Parquet files: read as a whole, or the row groups that can be read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.storage.problems import Problems, StorageError
from hgpo.storage.schema import SCHEMA_VERSION, VERSION_KEY, other_version

_DAMAGE = (pa.ArrowException, OSError)


def read_parquet(
    path: Path, problems: Problems, wanted: Collection[str] | None = None
) -> tuple[pa.Table, Sequence[int]]:
    """The rows of a parquet file and their numbers, from 0.

    Args:
        path: the file.
        problems: takes row groups that cannot be read; for a tolerant reader, texts that are not UTF-8 are damage, too.
        wanted: columns to read, None for all.

    Raises:
        StorageError: no row can be read, or the file is of another schema version.
    """
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except _DAMAGE as error:  # the index of a parquet file is its end: without it no row can be found
        raise StorageError(f"no row can be read; it is no parquet file or was cut off ({error})", path) from error
    with file:
        version = (file.schema_arrow.metadata or {}).get(VERSION_KEY, str(SCHEMA_VERSION).encode())
        if version != str(SCHEMA_VERSION).encode():
            raise StorageError(other_version(version.decode("utf-8", "replace")), path)
        names = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
        try:
            table = file.read(names)
            if not problems.strict:
                table.validate(full=True)  # that texts are UTF-8; the strict reader asks of the columns that are used
        except _DAMAGE:
            return _whole_groups(file, names, problems)
        return table, range(table.num_rows)


def _whole_groups(file: pq.ParquetFile, names: list[str], problems: Problems) -> tuple[pa.Table, list[int]]:
    """The row groups that can be read."""
    tables = [file.schema_arrow.empty_table().select(names)]
    numbers: list[int] = []
    first = 0
    for index in range(file.num_row_groups):
        end = first + file.metadata.row_group(index).num_rows
        try:
            table = file.read_row_group(index, names)
            table.validate(full=not problems.strict)
        except _DAMAGE as error:
            problems.lost(first, f"rows {first} to {end - 1} cannot be read ({error})")
        else:
            tables.append(table)
            numbers += range(first, end)
        first = end
    return pa.concat_tables(tables), numbers
