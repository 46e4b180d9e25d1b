"""What is wrong with files of steps: an error for who needs every row, notices for who takes what is readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from hgpo.utils.files import check_writable


def place_of(file: Path | str, row: int | None = None) -> str:
    """ "a.jsonl line 3", "a.parquet row 2" or "a.jsonl": lines are counted from 1, rows of parquet from 0."""
    if row is None:
        return str(file)
    return f"{file} {'line' if str(file).lower().endswith('.jsonl') else 'row'} {row}"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader of a report must know: what was left out of which file, and why.

    Attributes:
        message: What is wrong.
        file: Name of the file, "" for the whole input.
        row: First row it is about, None for the whole file; counted as `place_of` says.

    Example: `str(Notice("not JSON", "00007.jsonl", 12))` is "00007.jsonl line 12: not JSON".
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
    """What is wrong with the rows of one file: strict, the first is a `StorageError`; tolerant, each is kept.

    Problems of one `kind`, by default of one message, become one notice, so that a million bad rows do not give a
    million.

    Attributes:
        file: The file that is read.
        strict: Whether the first problem is raised.
        rows_are_lost: Whether some rows cannot be read, so that trajectories may lack a step.
        faulty: Rows with a value that cannot be used, by number: (kind, message). Whole trajectories go with them.

    Example: a tolerant one has one notice after `lost(2, "not JSON")` and `lost(5, "not JSON")`: row 2 and one more.
    """

    def __init__(self, file: Path, strict: bool) -> None:
        self.file, self.strict = file, strict
        self.rows_are_lost = False
        self.faulty: dict[int, tuple[str, str]] = {}
        self._first: dict[str, tuple[int, str]] = {}
        self._rows: Counter[str] = Counter()
        self._trajectories: dict[str, set[Hashable]] = {}

    def lost(self, row: int, message: str, kind: str = "") -> None:
        """A row cannot be read."""
        if self.strict:
            raise StorageError(message, self.file, row)
        self.rows_are_lost = True
        self._first.setdefault(kind or message, (row, message))
        self._rows[kind or message] += 1

    def fault(self, row: int, message: str, kind: str = "") -> None:
        """A row is there, with a value that cannot be used; null takes the value's place."""
        if self.strict:
            raise StorageError(message, self.file, row)
        self.faulty.setdefault(row, (kind or message, message))

    def left_out(self, trajectory: Hashable, row: int, problem: tuple[str, str]) -> None:
        """A trajectory is left out because of the (kind, message) of one of its rows."""
        kind, message = problem
        self._first.setdefault(kind, (row, message))
        self._trajectories.setdefault(kind, set()).add(trajectory)

    def notices(self) -> list[Notice]:
        """One notice per kind of problem, in the order of their appearance."""
        first = self._first.items()
        return [Notice(message + self._extent(kind), self.file.name, row) for kind, (row, message) in first]

    def _extent(self, kind: str) -> str:
        if count := len(self._trajectories.get(kind, ())):
            whose = "its trajectory is" if count == 1 else f"its trajectory and {count - 1} more like it are"
            return f"; {whose} left out of the comparisons"
        return f"; so are {self._rows[kind] - 1} more rows; all are left out" if self._rows[kind] > 1 else ""


# What a file of steps is: its names, its formats, its columns and its version.


SCHEMA_VERSION = 1
UPDATE_KEY = b"hgpo_update"
"""In the metadata of a parquet file that training wrote: which update its steps are of."""
VERSION_KEY = b"hgpo_schema_version"
FORMATS = ("auto", "hgpo", "verl", "trajectories")
BATCH_COLUMNS = ("group", "trajectory", "step", "observation", "reward")
OPTIONAL_BATCH_COLUMNS = ("action", "prompt", "penalty", "value", "next_observation", "success")
SUFFIXES = (".parquet", ".jsonl")


def suffix_of(path: Path) -> str:
    """ ".parquet" or ".jsonl", in whatever case `path` spells it.

    Raises:
        StorageError: it ends in something else; the message names both.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise StorageError(f"{path}: the name of a rollout file ends in {' or '.join(SUFFIXES)}; choose one of them")
    return suffix


def other_version(version: object) -> str:
    """What is said of steps of another schema version."""
    return (
        f"schema version {version}; this release reads {SCHEMA_VERSION}: write it again with this release, or read it "
        "with the release that wrote it"
    )


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse what cannot be written to, before anything is computed.

    Raises:
        StorageError: the name ends in neither .parquet nor .jsonl, is a folder's, or something is there that is not to
            be overwritten.
        OSError: nothing can be written there.
    """
    suffix_of(path)
    if path.is_dir():
        raise StorageError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise StorageError(f"{path} exists already; choose another name or add --force")
    check_writable(path)
