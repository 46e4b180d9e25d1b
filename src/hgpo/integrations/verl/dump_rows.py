"""Lines of a verl dump and the values in them, with errors that name file, line and key.

Shapes: N rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from hgpo.storage.tables import StorageError

Keys = tuple[str, ...]

_TRUTHS = {"True": True, "true": True, "False": False, "false": False}  # as Python and JSON spell them


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a dump.

    Example: `Row(Path("3.jsonl"), 1, {"input": "…", "output": "…", "step": 3}).place == "3.jsonl line 1"`.
    """

    file: Path
    line: int
    values: dict[str, Any]

    @property
    def place(self) -> str:
        """Where the line is, for messages."""
        return f"{self.file} line {self.line}"


def dump_files(path: Path) -> list[Path]:
    """The dumps that `path` stands for: itself, or the `*.jsonl` of a folder, `2.jsonl` before `10.jsonl`.

    Raises:
        StorageError: there is none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise StorageError(f"no such file or folder: {path}")
    files = [file for file in path.iterdir() if file.suffix.lower() == ".jsonl"]
    files.sort(key=lambda file: (len(file.stem), file.stem))
    if not files:
        raise StorageError(f"{path} holds no dumps (*.jsonl); set trainer.rollout_data_dir to have verl write them")
    return files


def read_rows(file: Path) -> list[Row]:
    """All lines of a dump.

    Raises:
        StorageError: a line is not a JSON object, or the file is not UTF-8.
    """
    rows = []
    with file.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    rows.append(Row(file, number, _parse(line, f"{file} line {number}")))
        except UnicodeDecodeError as error:
            raise StorageError(f"{file} is not UTF-8 text: {error}") from error
    return rows


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{place} is not JSON ({error}); verl may have been stopped while it wrote") from error
    if not isinstance(values, dict):
        raise StorageError(f"{place} is not an object")
    return values


def read_column(
    rows: Sequence[Row], name: str, keys: Keys, convert: Callable[[Any], Any], remedy: str = "", nullable: bool = False
) -> list[Any]:
    """The values of the one key of `keys` that occurs, converted; a message about its absence ends with `remedy`.

    Raises:
        StorageError: none or several of the keys occur, a row lacks the key or (unless `nullable`) has null there, a
            value cannot be converted, or some values are text and others are not where text counts as a key.
    """
    key = present_key(rows, keys)
    if key is None:
        raise _missing(rows[0], name, keys, remedy)
    values = []
    for row in rows:
        value = row.values.get(key)
        if value is None and not (nullable and key in row.values):
            raise _missing(row, name, (key,), remedy)
        try:
            values.append(None if value is None else convert(value))
        except (ValueError, TypeError, OverflowError) as error:
            raise StorageError(f"{row.place}: key {key!r} ({name}): {error}") from error
    if convert in (identifier, text_or_json):
        _check_one_kind(rows, key)
    return values


def present_key(rows: Sequence[Row], keys: Keys) -> str | None:
    """The one of `keys` that occurs, None where no row has any.

    Raises:
        StorageError: several of the keys occur, so that one would have to be guessed.
    """
    present = [key for key in keys if any(key in row.values for row in rows)]
    if len(present) > 1:
        raise StorageError(f"{rows[0].file}: both {' and '.join(present)} occur; say which one counts")
    return present[0] if present else None


def _missing(row: Row, name: str, keys: Keys, remedy: str) -> StorageError:
    wanted = " or ".join(map(repr, keys)) or "no key"
    return StorageError(
        f"{row.place}: no {name}: {wanted} is missing or null; there are {', '.join(row.values)}. "
        f"Name another key ({name}=KEY){remedy}"
    )


def _check_one_kind(rows: Sequence[Row], key: str) -> None:
    """Text is kept as it is and other values as their JSON, so only one of the two may occur."""
    is_text = [isinstance(row.values[key], str) for row in rows if row.values[key] is not None]
    if any(is_text) and not all(is_text):
        odd = next(row for row in rows if row.values[key] is not None and not isinstance(row.values[key], str))
        raise StorageError(f"{odd.place}: {key!r} is {odd.values[key]!r}, but text in other rows")


def identifier(value: object) -> str:
    """An id as text. Raises TypeError for anything but text and integers, ValueError for what UTF-8 cannot hold."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"expected text or an integer as an id, got {value!r}")
    return str(value).encode("utf-8").decode()  # a replacement, as in `text`, might make two ids one


def text(value: object) -> str:
    """Text that UTF-8 can hold. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()


def text_or_json(value: object) -> str:
    """Text as it is, any other JSON value as JSON text with sorted keys."""
    return text(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False))


def number(value: object) -> float:
    """A finite number, which may have been written as text. Raises TypeError or ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"expected a number, got {value!r}")
    if not isfinite(converted := float(value)):
        raise ValueError(f"expected a finite number, got {value!r}")
    return converted


def whole(value: object) -> int:
    """An integer of at least 0 and below 2**31. Raises TypeError or ValueError for anything else."""
    if (converted := number(value)) != int(converted) or not 0 <= converted < 2**31:
        raise ValueError(f"expected an integer of at least 0 and below 2**31, got {value!r}")
    return int(converted)


def truth(value: object) -> bool:
    """true, false, 1, 0, or the text of one of them. Raises TypeError or ValueError for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if (converted := number(value)) not in (0.0, 1.0):
        raise ValueError(f"expected true or false, got {value!r}")
    return converted == 1.0
