"""Tables in parquet and JSONL files: reading, writing, joining.

A damaged parquet file cannot be read; in a damaged JSONL file (one object per line), undamaged lines can. A key that a
line lacks is null in that row. Problems are reported with file, line, column and remedy; the search for a value that
does not fit its column runs only after an error, so it costs nothing for a good file.

Text columns hold untrusted model and environment output: code that displays them must escape them.
"""

from __future__ import annotations

import codecs
import json
import reprlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.keys import canonical_json
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    KEY_COLUMNS,
    NEEDED_COLUMNS,
    SCHEMA_VERSION,
    VERSION_KEY,
    Problems,
    StorageError,
    other_version,
    suffix_of,
    text_or_json,
)
from hgpo.utils.files import naming, whole_file

_NO_OBJECT = ("object", "not an object; a row is an object of columns")
_ARRAY = ("array", "not an object but an array; if the whole file is an array, give it a name in .json")
_VIEWED = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Types whose rows Arrow cannot select -> types with the same values."""
_SAME_TYPE = "write values of one type per column: ids as text, numbers without quotes, text as UTF-8"
_MISFITS = (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError)


def read_parquet(path: Path) -> pa.Table:
    """The rows of a parquet file.

    Raises:
        StorageError: The file is damaged, has text that is not UTF-8, columns of one name, or another schema version.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(VERSION_KEY, str(SCHEMA_VERSION).encode())
            if version != str(SCHEMA_VERSION).encode():
                raise StorageError(other_version(version.decode("utf-8", "replace")), path)
            [(name, count)] = Counter(file.schema_arrow.names).most_common(1) or [("", 0)]
            if count > 1:
                raise StorageError(f"{count} columns are named {name!r}; rename or remove one", path)
            table = file.read()
        table.validate(full=True)  # checks that texts are UTF-8
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"no row can be read; it is not a parquet file or is damaged ({error})", path) from error
    fields = [pa.field(field.name, _VIEWED.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def read_lines(path: Path, problems: Problems) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of a JSONL file and their line numbers, from 1, without blank lines; of a .json file, the objects of
    its array and their numbers, from 0.

    `problems` records rows that cannot be read or have another schema version.

    Raises:
        StorageError: A .json file is not an array.
    """
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, row in parsed_rows(path):
        if isinstance(row, tuple):
            problems.lost(number, row[1], kind=row[0])
        elif (version := row.pop("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
            problems.lost(number, other_version(version))
        else:
            rows.append(row)
            numbers.append(number)
    return rows, numbers


def parsed_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | tuple[str, str]]]:
    """Number and object of each row, as in `read_lines`; instead of an object, the (kind, message) of its problem.

    Raises:
        StorageError: A .json file is not an array.
    """
    if suffix_of(path) == ".jsonl":
        with path.open("rb") as lines:
            yield from ((number, _parsed(line)) for number, line in enumerate(lines, 1) if not line.isspace())
        return
    try:
        elements = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise StorageError(f"not JSON ({error}); write it again or name a .jsonl file", path) from error
    if not isinstance(elements, list):
        keys = f" with {', '.join(elements)}" if isinstance(elements, dict) else ""
        raise StorageError(f"expected an array of objects, got {type(elements).__name__}{keys}", path)
    yield from enumerate(element if isinstance(element, dict) else _NO_OBJECT for element in elements)


def _parsed(line: bytes) -> dict[str, Any] | tuple[str, str]:
    """The object in a line, or the (kind, message) of its problem."""
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return "UTF-8", f"not UTF-8 ({error}); write it as UTF-8"
    except RecursionError:
        return "nested", "nested too deeply to be read; flatten it"
    except ValueError as error:
        if line.startswith(codecs.BOM_UTF8):
            return _parsed(line.removeprefix(codecs.BOM_UTF8))
        if line.strip() == b"[":
            return _ARRAY
        cut = "" if line.endswith(b"\n") else ", the file may have been cut off here"
        return f"JSON{cut}", f"not JSON ({error}){cut}; write it again or remove it"
    return row if isinstance(row, dict) else _ARRAY if isinstance(row, list) else _NO_OBJECT


def read_json_lines(
    path: Path, problems: Problems, keys: Collection[str] = KEY_COLUMNS, needed: Collection[str] = NEEDED_COLUMNS
) -> tuple[pa.Table, list[int]]:
    """The rows of a JSONL or .json file and their numbers; columns in order of first appearance.

    Args:
        path: The file.
        problems: Records lines that cannot be read, and values whose type differs from the rest of their column.
        keys: Columns that are compared: nested values become canonical JSON text.
        needed: Columns that are computed with. Another column may have values of several types, which become text.

    Raises:
        StorageError: No row has a column, or the values or the name of one cannot be stored.
    """
    rows, numbers = read_lines(path, problems)
    names = dict.fromkeys(chain.from_iterable(rows))
    if rows and not names:
        raise StorageError(f"no row has a column of steps; needed are {', '.join(BATCH_COLUMNS)}", path)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in keys:
            values = [canonical_json(value) if isinstance(value, (dict, list)) else value for value in values]
        columns[name] = _column(name, values, numbers, problems, name in needed)
    try:
        return pa.table(columns), numbers
    except UnicodeEncodeError as error:
        raise StorageError(f"the name of a column has half of a surrogate pair ({error}); rename it", path) from error


def _column(name: str, values: list[Any], numbers: list[int], problems: Problems, is_needed: bool) -> pa.Array:
    """The values as a column. If they have several types: text or, if needed, null for those of a less frequent one."""
    try:
        return pa.array(values)
    except _MISFITS:
        with suppress(RecursionError):
            if not is_needed:
                return pa.array([None if value is None else text_or_json(value) for value in values])
        for row, message in _misfits(values):
            problems.fault(numbers[row], f"column {name!r} is {message}", kind=f"column {name!r}")
            values[row] = None
    try:
        return pa.array(values)
    except _MISFITS as error:
        raise StorageError(f"column {name!r}: {error}; {_SAME_TYPE}", problems.file) from error


def _misfits(values: list[Any]) -> Iterator[tuple[int, str]]:
    """Row and message of each value that does not fit the most frequent type of the column."""
    [(kind, _)] = Counter(_kind(value) for value in values if value is not None).most_common(1)
    usual = next((value for value in values if _kind(value) == kind and _fits(value)), None)
    for row, value in enumerate(values):
        try:
            pa.array([value, usual])
            pa.array([usual, value])  # Arrow accepts a boolean after a number, but not before
        except _MISFITS as error:
            beside = "" if usual is None else f", which does not go with {reprlib.repr(usual)} in other rows"
            yield row, f"{reprlib.repr(value)}{beside} ({error}); {_SAME_TYPE}"


def _kind(value: Any) -> type:
    """The type of a value; integers and floats go together."""
    return float if type(value) is int else type(value)


def _fits(value: Any) -> bool:
    """Whether some column can hold the value."""
    try:
        pa.array([value])
    except _MISFITS:
        return False
    return True


def python_rows(table: pa.Table, file: Path) -> list[dict[str, Any]]:
    """The rows of a table, which was read from `file`; see `python_values`."""
    values = [python_values(table, name, file) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*values, strict=True)]


def python_values(table: pa.Table, name: str, file: Path | None = None) -> list[Any]:
    """The values of a column, with times as text: Python's have no nanoseconds, and few years.

    Raises:
        StorageError: Python's types cannot hold a nested time.
    """
    column = table.column(name)
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError) as error:
        message = f"column {name!r}: a nested time cannot be read ({error}); write it as text"
        raise StorageError(message, file) from error


def joined_ids(groups: Iterable[Any], trajectories: Iterable[Any]) -> list[str | None]:
    """Ids of the trajectories that are unique in the file, one per row; None for a missing trajectory.

    They are `<group>/<trajectory>`, or both as JSON text if two trajectories would have the same one.
    """
    pairs = list(zip(groups, trajectories, strict=True))
    ids = {pair: "{}/{}".format(*pair) for pair in pairs}
    if len(set(ids.values())) < len(ids):
        ids = {pair: canonical_json(pair) for pair in ids}
    return [None if pair[1] is None else ids[pair] for pair in pairs]


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table with the schema version through a temporary file, so that readers never see a partial file.

    The suffix .jsonl selects JSONL, any other parquet; check a user's file name with `suffix_of` first. Parquet pages
    have checksums, which `read_parquet` verifies.

    Raises:
        StorageError: A column has a type that JSON or parquet cannot represent.
    """
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
    """Append the rows of `table` to a JSONL file; a process that is killed while writing may leave a partial line."""
    with naming(path), path.open("a", encoding="utf-8") as lines:
        lines.writelines(json_lines(path, table))


def json_lines(path: Path, table: pa.Table) -> Iterator[str]:
    """A table's rows as lines of JSON, each with the schema version.

    Raises:
        StorageError: JSON cannot represent a value, such as a time or bytes.
    """
    try:
        for row in table.to_pylist():
            yield json.dumps({"schema_version": SCHEMA_VERSION, **row}, ensure_ascii=False) + "\n"
    except (TypeError, ValueError, OverflowError) as error:
        raise StorageError(f"{path}: {error}; write .parquet, or leave its column out") from error


def join_tables(tables: Sequence[pa.Table], files: Sequence[Path]) -> pa.Table:
    """All rows of `tables`, which were read from `files`, in order; null in a column that a table lacks.

    Numbers of different width are joined. Numbers and text are not: equal ids would become different ones.

    Raises:
        StorageError: A column has types that cannot be joined.
    """
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise StorageError(f"{files[0].parent}: the files cannot be joined ({error}); {_SAME_TYPE}") from error
