"""verl's rollout dumps for a report: the caller brings their reader; here damaged lines are left out first.

verl writes line by line, so a run that was stopped leaves half a line at the end.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.report.reading import COLUMNS, Notice, ReadFile
from hgpo.storage.tables import StorageError

DumpReader = Callable[[Path], pa.Table]
"""`hgpo.integrations.verl.dumps.read_dumps`, or one like it: a table with `COLUMNS` and `dump_line`."""

_KEYS = {"input", "output"}


def is_verl_dump(path: Path) -> bool:
    """Whether the first readable line has verl's names for prompt and response and not this project's."""
    if path.suffix != ".jsonl":
        return False
    with path.open("rb") as lines:
        for line in lines:
            row = _parsed(line)
            if isinstance(row, dict):
                return row.keys() >= _KEYS and "observation" not in row
    return False


def read_verl_dump(path: Path, read: DumpReader) -> ReadFile:
    """The rows of one dump as `read` understands them; what it refuses becomes a notice."""
    lines = path.read_bytes().split(b"\n")
    damaged = [number for number, line in enumerate(lines) if line.strip() and not isinstance(_parsed(line), dict)]
    notices = []
    if damaged:
        more = f", nor are {len(damaged) - 1} more" if len(damaged) > 1 else ""
        notices = [Notice(f"is not a JSON object{more}; left out", path.name, damaged[0] + 1)]
        lines = [b"" if number in set(damaged) else line for number, line in enumerate(lines)]
    with tempfile.TemporaryDirectory() as folder:  # empty lines keep the numbers of the others
        copy = Path(folder) / path.name
        copy.write_bytes(b"\n".join(lines))
        try:
            table = read(copy)
        except StorageError as error:
            message = str(error).replace(f"{copy.parent}/", "")
            return ReadFile({}, [], True, [*notices, Notice(f"cannot be shown: {message}", path.name)])
    numbers: list[int] = table.column("dump_line").to_pylist()
    shown: dict[str, list[Any]] = {
        name: table.column(name).to_pylist() for name in COLUMNS if name in table.column_names
    }
    return ReadFile(shown, numbers, bool(damaged), notices)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
