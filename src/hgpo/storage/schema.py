"""Files of steps: names, formats, columns, schema version, values, and the errors and notices about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import UUID

from hgpo.keys import canonical_json
from hgpo.messages import encodable

SCHEMA_VERSION = 1
UPDATE_KEY = b"hgpo_update"
"""Metadata of a parquet file that training wrote: the update that its steps were collected for."""
VERSION_KEY = b"hgpo_schema_version"
FORMATS = ("auto", "hgpo", "verl", "trajectories")
BATCH_COLUMNS = ("group", "trajectory", "step", "observation", "reward")
KEY_COLUMNS = ("observation", "action", "prompt", "next_observation")
"""Columns whose values are compared and may be nested."""
OPTIONAL_BATCH_COLUMNS = (
    "action",
    "prompt",
    "penalty",
    "value",
    "bootstrap",
    "next_observation",
    "success",
    "response_log_prob",
    "truncated",
)
NEEDED_COLUMNS = frozenset({*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS, "won"} - {"truncated"})
"""Columns whose values must have one type; `truncated` is ignored if it has another meaning."""
SUFFIXES = (".parquet", ".jsonl")
"""Suffixes of files that are read and written. A .json file (an array of objects) is read if a path names it."""
_TRUTHS = {"True": True, "true": True, "False": False, "false": False}  # as Python and JSON spell them


def suffix_of(path: Path, *, written: bool = False) -> str:
    """The suffix of `path` in lower case: ".parquet", ".jsonl" or, unless the file is to be written, ".json".

    Raises:
        StorageError: `path` has another suffix.
    """
    suffix = path.suffix.lower()
    known = SUFFIXES if written else (*SUFFIXES, ".json")
    if suffix not in known:
        remedy = "choose one of them" if written else "convert or unpack the file"
        raise StorageError(f"{path}: the name of a rollout file ends in {' or '.join(known)}; {remedy}")
    return suffix


def place_of(file: Path | str, row: int | None = None) -> str:
    """A place for messages, such as "a.jsonl line 3" or "a.parquet row 2"; lines count from 1, other rows from 0."""
    if row is None:
        return str(file)
    return f"{file} {'line' if str(file).lower().endswith('.jsonl') else 'row'} {row}"


def other_version(version: object) -> str:
    """The message about steps of another schema version."""
    return (
        f"schema version {version}; this release reads {SCHEMA_VERSION}: write it again with this release, or read it "
        "with the release that wrote it"
    )


@dataclass(frozen=True, slots=True)
class Notice:
    """What was left out of a file, and why.

    Attributes:
        message: The problem.
        file: Name of the file, "" for the whole input.
        row: First affected row, None for the whole file; counted as in `place_of`.
    """

    message: str
    file: str = ""
    row: int | None = None

    def __str__(self) -> str:
        """File and row, then the message."""
        return f"{place_of(self.file, self.row)}: {self.message}" if self.file else self.message


class StorageError(ValueError):
    """A file of steps is missing, damaged or of another schema; the message names file, place and remedy.

    Attributes:
        notice: The same for a report, with the name of the file instead of its path.
    """

    def __init__(self, message: str, file: Path | None = None, row: int | None = None) -> None:
        super().__init__(message if file is None else f"{place_of(file, row)}: {message}")
        self.notice = Notice(message, "" if file is None else file.name, row)


class Problems:
    """Collects the problems of one file: if strict, the first raises a `StorageError`; otherwise each is recorded.

    Problems of one `kind`, by default of one message, become one notice, so the number of notices stays small.

    Attributes:
        file: The file that is read.
        strict: Whether the first problem is raised.
        rows_are_lost: Whether some rows cannot be read, so that trajectories may lack a step.
        faulty: Rows with an unusable value, by number: (kind, message). Their trajectories are left out.
    """

    def __init__(self, file: Path, strict: bool) -> None:
        self.file, self.strict = file, strict
        self.rows_are_lost = False
        self.faulty: dict[int, tuple[str, str]] = {}
        self._first: dict[str, tuple[int, str]] = {}
        self._rows: Counter[str] = Counter()
        self._trajectories: dict[str, set[Hashable]] = {}

    def lost(self, row: int, message: str, kind: str = "") -> None:
        """Record a row that cannot be read."""
        if self.strict:
            raise StorageError(message, self.file, row)
        self.rows_are_lost = True
        self._first.setdefault(kind or message, (row, message))
        self._rows[kind or message] += 1

    def fault(self, row: int, message: str, kind: str = "") -> None:
        """Record a row with an unusable value; the reader replaces the value with null."""
        if self.strict:
            raise StorageError(message, self.file, row)
        self.faulty.setdefault(row, (kind or message, message))

    def left_out(self, trajectory: Hashable, row: int, problem: tuple[str, str]) -> None:
        """Record a trajectory that is left out because of the (kind, message) of one of its rows."""
        kind, message = problem
        self._first.setdefault(kind, (row, message))
        self._trajectories.setdefault(kind, set()).add(trajectory)

    def notices(self) -> list[Notice]:
        """One notice per kind of problem, in order of appearance."""
        first = self._first.items()
        return [Notice(message + self._extent(kind), self.file.name, row) for kind, (row, message) in first]

    def _extent(self, kind: str) -> str:
        if count := len(self._trajectories.get(kind, ())):
            whose = "its trajectory is" if count == 1 else f"its trajectory and {count - 1} more like it are"
            return f"; {whose} left out of the comparisons"
        return f"; so are {self._rows[kind] - 1} more rows; all are left out" if self._rows[kind] > 1 else ""


def identifier(value: object) -> str:
    """An id as text. This and the next functions raise TypeError or ValueError for a value they cannot convert."""
    if isinstance(value, bool) or not isinstance(value, (str, int, UUID)):
        raise TypeError(f"expected text or an integer as an id, got {value!r}")
    return str(value).encode("utf-8").decode()  # a replacement, as in `text`, might make two ids equal


def text(value: object) -> str:
    """Text; characters that UTF-8 cannot encode become question marks."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return encodable(value)


def text_or_json(value: object) -> str:
    """Text as it is, any other value as canonical JSON text (`hgpo.keys`)."""
    return text(value if isinstance(value, str) else canonical_json(value))


def number(value: object) -> float:
    """A finite number, or its text: verl writes values that JSON does not know as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise TypeError(f"expected a number, got {value!r}")
    if not isfinite(converted := float(value)):
        raise ValueError(f"expected a finite number, got {value!r}")
    return converted


def reward_number(value: object) -> float:
    """A number, or true as 1 and false as 0: the reward of many logs is the success."""
    return float(value) if isinstance(value, bool) else number(value)


def whole(value: object) -> int:
    """An integer of at least 0 and below 2**31."""
    if (converted := number(value)) != int(converted) or not 0 <= converted < 2**31:
        raise ValueError(f"expected an integer of at least 0 and below 2**31, got {value!r}")
    return int(converted)


def truth(value: object) -> bool:
    """true, false, 1, 0, or the text of one of them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if (converted := number(value)) not in (0.0, 1.0):
        raise ValueError(f"expected true or false, got {value!r}")
    return converted == 1.0


def converted(value: Any, convert: Callable[[Any], Any], where: str) -> Any:
    """The converted value.

    Raises:
        ValueError: The value cannot be converted; the message begins with `where`.
    """
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from error
