"""JSONL: one object per line, one column per key that any line has.

A key that a line lacks is null there, as if the line said so. What cannot be read is reported with file, line, column
and remedy; finding a value that does not fit is left to the error path, so that a good file costs nothing for it.
"""

from __future__ import annotations

import codecs
import json
import reprlib
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.problems import Problems, StorageError
from hgpo.storage.schema import BATCH_COLUMNS, SCHEMA_VERSION, other_version

_INT64 = range(-(2**63), 2**63)
_ONE_KIND = "write one kind of value per column: ids as text, numbers without quotes"
_MISFITS = (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError)


def read_lines(path: Path, problems: Problems) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows of a file and the numbers of their lines, from 1; blank lines are no rows.

    A line that cannot be read or has another schema version goes to `problems`.
    """
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            row = parsed_line(line)
            if isinstance(row, tuple):
                problems.lost(number, row[1], kind=row[0])
            elif (version := row.pop("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
                problems.lost(number, other_version(version))
            else:
                rows.append(row)
                numbers.append(number)
    return rows, numbers


def parsed_line(line: bytes) -> dict[str, Any] | tuple[str, str]:
    """The object that a line holds, or the (kind, message) of what is wrong with it."""
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return "UTF-8", f"not UTF-8 ({error}); write it as UTF-8"
    except RecursionError:
        return "nested", "nested too deeply to be read; flatten it"
    except ValueError as error:
        if line.startswith(codecs.BOM_UTF8):
            return parsed_line(line.removeprefix(codecs.BOM_UTF8))
        cut = "" if line.endswith(b"\n") else ", the file may have been cut off here"
        return f"JSON{cut}", f"not JSON ({error}){cut}; write it again or remove it"
    return row if isinstance(row, dict) else ("object", "not an object; a row is an object of columns")


def read_json_lines(
    path: Path, problems: Problems, wanted: Collection[str] | None = None
) -> tuple[pa.Table, list[int]]:
    """The rows of a JSONL file and their line numbers; columns in the order of first appearance.

    Args:
        path: the file.
        problems: takes lines that cannot be read, and values that do not go with the others of their column.
        wanted: columns to read, None for all.

    Raises:
        StorageError: no row has a column that is wanted, or the values of one make no column.
    """
    rows, numbers = read_lines(path, problems)
    found = list(dict.fromkeys(chain.from_iterable(rows)))
    names = found if wanted is None else [name for name in found if name in wanted]
    if rows and not names:
        raise StorageError(f"no row has a column of steps; needed are {', '.join(BATCH_COLUMNS)}", path)
    complete = set(map(len, rows)) == {len(found)}  # as nearly all files are, and quicker to take apart
    columns = {}
    for name in names:
        if not _fits(name):
            number = next(number for number, row in zip(numbers, rows, strict=True) if name in row)
            message = f"the name of column {name!r} has half of a surrogate pair, which UTF-8 cannot hold; rename it"
            raise StorageError(message, path, number)
        values = list(map(itemgetter(name), rows)) if complete else [row.get(name) for row in rows]
        columns[name] = _column(name, values, numbers, problems)
    return pa.table(columns), numbers


def _column(name: str, values: list[Any], numbers: list[int], problems: Problems) -> pa.Array:
    """The values as a column, null where one does not go with the others."""
    try:
        return pa.array(values)
    except _MISFITS:
        for row, kind, message in _misfits(values):
            problems.fault(numbers[row], f"column {name!r} is {message}", kind=f"column {name!r} {kind}")
            values[row] = None
    try:
        return pa.array(values)
    except _MISFITS as error:
        raise StorageError(f"column {name!r}: {error}; {_ONE_KIND}", problems.file) from error


def _misfits(values: list[Any]) -> Iterator[tuple[int, str, str]]:
    """(row, kind of problem, message) of each value that does not go with the usual one of the column."""
    [(kind, _)] = Counter(_kind(value) for value in values if value is not None).most_common(1)
    usual = next((value for value in values if _kind(value) == kind and _fits(value)), None)
    for row, value in enumerate(values):
        try:
            pa.array([value, usual])
            pa.array([usual, value])  # Arrow takes a truth after a number, and none before
        except UnicodeEncodeError:
            problem = "text with half of a surrogate pair, which UTF-8 cannot hold; replace it when writing: "
            yield row, "half", f"{reprlib.repr(value)}, {problem}text.encode('utf-8', 'replace').decode()"
        except _MISFITS as error:
            if isinstance(value, int) and value not in _INT64:
                yield row, "large", f"{reprlib.repr(value)}, which 64 bits cannot hold; write such ids as text"
            else:
                reason = f"which does not go with {reprlib.repr(usual)} in other rows ({error})"
                yield row, "kind", f"{reprlib.repr(value)}, {reason}; {_ONE_KIND}"


def _kind(value: Any) -> type:
    """What the values of a column have in common."""
    return float if type(value) is int else type(value)


def _fits(value: Any) -> bool:
    """Whether some column can hold the value."""
    try:
        pa.array([value])
    except _MISFITS:
        return False
    return True
