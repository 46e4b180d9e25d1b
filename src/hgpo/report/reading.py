"""Rollout files as columns of Python values, as much of them as can be read; what cannot be is a `Notice`.

`hgpo.storage.tables` refuses a damaged file, because training on half of one is wrong. An inspector is what one opens
to see what happened, so this reader keeps the rest and says which rows are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.storage.tables import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS, SCHEMA_VERSION, VERSION_KEY

SHOWN_COLUMNS = ("response", "task_type", "fault", "valid", "won", "terminated", "truncated")
COLUMNS = (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS, *SHOWN_COLUMNS)
_REMEDY = "write it again with this release, or read it with the release that wrote it"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader of a report must know: what was left out of which file, and why.

    Attributes:
        message: a sentence. file: name of the file, "" for the whole input.
        row: first row it is about, None for the whole file. Counted as the file counts: lines of JSONL from 1, rows of
            parquet from 0.

    Example: `str(Notice("is not JSON", "00007.jsonl", 12))` is "00007.jsonl, row 12: is not JSON".
    """

    message: str
    file: str = ""
    row: int | None = None

    def __str__(self) -> str:
        """File and row, then the message."""
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: {self.message}" if place else self.message


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The readable rows of one file.

    Attributes:
        columns: name -> one value per row, None where a row has none; only `COLUMNS`, and only those that occur.
        row_number: number of each row in the file, see `Notice.row`.
        cut: whether rows are lost, so that trajectories may lack their end.
        notices: what could not be read.

    Example: two lines `{"group": "g", "step": 0}` and `{"gro` are columns {"group": ["g"], "step": [0]}, row_number
    [1], cut True and two notices about row 2.
    """

    columns: dict[str, list[Any]]
    row_number: list[int]
    cut: bool = False
    notices: list[Notice] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of readable rows."""
        return len(self.row_number)


def read_file(path: Path) -> ReadFile:
    """Read a parquet or JSONL file as far as it goes; never raises for what is in it."""
    return _read_jsonl(path) if path.suffix.lower() == ".jsonl" else _read_parquet(path)


def count_rows(path: Path) -> int:
    """About how many rows a file has, without reading their content; 0 where that cannot be told."""
    try:
        if path.suffix.lower() == ".jsonl":
            with path.open("rb") as lines:
                return sum(1 for _ in lines)
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return 0


def _read_jsonl(path: Path) -> ReadFile:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    problems = _Problems(path.name)
    number, ends_whole = 0, True
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            ends_whole = True
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # bytes that are no UTF-8 are a ValueError as well
                problems.add("is not JSON", number, f" ({error})")
                ends_whole = False
                continue
            if not isinstance(row, dict):
                problems.add("is not an object with columns", number)
            elif (version := row.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
                problems.add(
                    f"has schema version {version}; this release reads {SCHEMA_VERSION}", number, f": {_REMEDY}"
                )
            else:
                rows.append(row)
                numbers.append(number)
    if not ends_whole:
        problems.add("the file was cut off here", number)
    present = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS if name in present}
    notices = problems.notices()
    return ReadFile(columns, numbers, bool(notices), notices)


def _read_parquet(path: Path) -> ReadFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        # The index of a parquet file is its end: without it no row can be found.
        return ReadFile(
            {}, [], True, [Notice(f"no row can be read, not even row 0; the file is cut off ({error})", path.name)]
        )
    with file:
        version = (file.schema_arrow.metadata or {}).get(VERSION_KEY)
        if version is not None and version != str(SCHEMA_VERSION).encode():
            text = version.decode("utf-8", "replace")
            message = f"has schema version {text}; this release reads {SCHEMA_VERSION}: {_REMEDY}"
            return ReadFile({}, [], False, [Notice(message, path.name, 0)])
        wanted = [name for name in COLUMNS if name in file.schema_arrow.names]
        columns: dict[str, list[Any]] = {name: [] for name in wanted}
        numbers: list[int] = []
        notices: list[Notice] = []
        first = 0
        for index in range(file.num_row_groups):
            count = file.metadata.row_group(index).num_rows
            try:
                values = {name: file.read_row_group(index, [name]).column(0).to_pylist() for name in wanted}
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                last = first + count - 1
                notices.append(
                    Notice(f"rows {first} to {last} cannot be read and are left out ({error})", path.name, first)
                )
            else:
                for name in wanted:
                    columns[name].extend(values[name])
                numbers.extend(range(first, first + count))
            first += count
    return ReadFile(columns, numbers, bool(notices), notices)


class _Problems:
    """Counts rows by what is wrong with them, so that a file of a million bad rows gives one notice."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._first: dict[str, tuple[int, str]] = {}
        self._count: dict[str, int] = {}

    def add(self, problem: str, row: int, detail: str = "") -> None:
        self._first.setdefault(problem, (row, detail))
        self._count[problem] = self._count.get(problem, 0) + 1

    def notices(self) -> list[Notice]:
        return list(self._notices())

    def _notices(self) -> Iterable[Notice]:
        for problem, (row, detail) in self._first.items():
            more = (
                f"; so are {self._count[problem] - 1} more rows; all are left out" if self._count[problem] > 1 else ""
            )
            yield Notice(f"{problem}{detail}{more}", self._file, row)
