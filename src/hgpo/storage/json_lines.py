"""JSONL as a table: one object per line, one column per key that any line has.

A key that a line lacks is null there, as if the line said so. What cannot be read is a `StorageError` with file, line,
column and remedy; finding the line is left to the error path, so that a good file costs nothing for it.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.schema import SCHEMA_VERSION, StorageError

_INT64 = range(-(2**63), 2**63)
_MISFITS = (pa.ArrowException, OverflowError, UnicodeEncodeError, RecursionError)


def read_json_lines(path: Path) -> pa.Table:
    """All rows of a JSONL file; columns in the order of first appearance.

    Raises:
        StorageError: a line is not UTF-8, no JSON object or of another schema version; values of one column are of
            several kinds, too large or no Unicode text; or the file holds no rows.
    """
    try:
        rows = list(_rows(path))
    except UnicodeDecodeError as error:
        line = _undecodable_line(path)
        raise StorageError(f"{path} line {line} is not UTF-8 ({error}); write it as UTF-8") from error
    if not rows:
        raise StorageError(f"{path} holds no rows; write it again or remove it")
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    if not names:
        raise StorageError(f"{path}: no row has a column; write it again or remove it")
    _check_names(path, rows, names)
    return pa.table({name: _column(path, name, values) for name, values in _values(rows, names)})


def filled_lines(path: Path) -> Iterator[int]:
    """The number of the line, from 1, of each row in turn: blank lines are no rows."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from (number for number, line in enumerate(lines, start=1) if not line.isspace())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
            except RecursionError as error:
                raise StorageError(f"{path} line {number} is nested too deeply to be read; flatten it") from error
            except ValueError as error:
                raise StorageError(f"{path} line {number} is not JSON: {error}; write it again or remove it") from error
            if not isinstance(row, dict):
                raise StorageError(f"{path} line {number} is not an object; a row is an object of columns")
            version = row.pop("schema_version", SCHEMA_VERSION)
            if version != SCHEMA_VERSION:
                raise StorageError(
                    f"{path} line {number} has schema version {version}; this release reads {SCHEMA_VERSION}"
                )
            yield row


def _values(rows: list[dict[str, Any]], names: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """Each column's name and values, None where a row has none."""
    complete = set(map(len, rows)) == {len(names)}  # as nearly all files are, and quicker to take apart
    for name in names:
        yield name, list(map(itemgetter(name), rows)) if complete else [row.get(name) for row in rows]


def _column(path: Path, name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except _MISFITS as error:
        row, cause = _first_misfit(values, error)
        raise StorageError(f"{_place(path, row)}: column {name!r} {_misfit(values, row, cause)}") from cause


def _first_misfit(values: list[Any], failure: Exception) -> tuple[int, Exception]:
    """The row that cannot join those above it, found by halving, and what Arrow says of it."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            pa.array(values[:middle])
            good = middle
        except _MISFITS as error:
            bad, failure = middle, error
    return bad - 1, failure


def _misfit(values: list[Any], row: int, error: Exception) -> str:
    """What is wrong with the value of `row`, and the remedy."""
    value, shown = values[row], reprlib.repr(values[row])
    if isinstance(error, UnicodeEncodeError):
        return (
            f"is {shown}, text with half of a surrogate pair, which UTF-8 cannot hold; replace it when writing: "
            "text.encode('utf-8', 'replace').decode()"
        )
    if isinstance(value, int) and value not in _INT64:
        return f"is {shown}, which 64 bits cannot hold; write such ids as text"
    before = next((other for other in values[:row] if other is not None), None)
    beside = f"which does not go with {reprlib.repr(before)} above it " if row and before is not None else ""
    return f"is {shown}, {beside}({error}); write one kind of value per column: ids as text, numbers without quotes"


def _check_names(path: Path, rows: list[dict[str, Any]], names: list[str]) -> None:
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            row = next(row for row, values in enumerate(rows) if name in values)
            raise StorageError(
                f"{_place(path, row)}: the name of column {name!r} has half of a surrogate pair, which UTF-8 cannot "
                "hold; rename it"
            ) from error


def _place(path: Path, row: int) -> str:
    line = next(number for index, number in enumerate(filled_lines(path)) if index == row)
    return f"{path} line {line}"


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    raise AssertionError("only called for a file that is not UTF-8")
