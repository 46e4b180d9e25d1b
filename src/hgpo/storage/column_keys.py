"""Columns that are read from other keys than usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from hgpo.storage import trajectory_files, verl_dumps
from hgpo.storage.problems import StorageError
from hgpo.storage.schema import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS

_READ = {
    "hgpo": (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS),
    "verl": tuple(verl_dumps.COLUMNS),
    "trajectories": trajectory_files.KEYS,
}
_FILES = {"hgpo": "rollouts", "verl": "dumps of verl", "trajectories": "files of trajectories"}


def parse_columns(assignments: Sequence[str]) -> dict[str, str]:
    """["observation=room"] as {"observation": "room"}.

    Raises:
        ValueError: an assignment without name, `=` or key, or a name given twice.
    """
    columns: dict[str, str] = {}
    for assignment in assignments:
        name, _, key = assignment.partition("=")
        if not name or not key:
            raise ValueError(f"expected NAME=KEY, got {assignment!r}")
        if name in columns:
            raise ValueError(f"column {name} is given twice: {columns[name]} and {key}")
        columns[name] = key
    return columns


def check_columns(columns: Mapping[str, str], format: str) -> None:
    """Refuse columns that nobody reads: a slip of the pen would otherwise leave the real column out unnoticed.

    Raises:
        ValueError: no such column is read from files of this format, or two are given of which one may be.
    """
    for name in columns:
        if name not in _READ[format]:
            remedy = _remedy(name) if format == "hgpo" else ""
            raise ValueError(
                f"no column {name} is read from {_FILES[format]}{remedy}; columns: {', '.join(_READ[format])}"
            )
    if "reward" in columns and "final_reward" in columns:
        raise ValueError("give either reward, of each step, or final_reward, of the whole trajectory, not both")


def _remedy(name: str) -> str:
    """What to add to have a column read that files of another format have."""
    if name in verl_dumps.COLUMNS:
        return "; it is one of verl's dumps: add --format verl (format='verl')"
    if name in trajectory_files.KEYS:
        return "; it is one of files with a trajectory a line: add --trajectories (format='trajectories')"
    return ""


def renamed(table: pa.Table, columns: Mapping[str, str], file: Path) -> pa.Table:
    """The table with some columns taken from others.

    Raises:
        StorageError: one of these others is not there.
    """
    for name, key in columns.items():
        if key not in table.column_names:
            there = ", ".join(table.column_names)
            raise StorageError(f"no column {key} to read {name} from; there are {there}", file)
    taken = {name: table.column(key) for name, key in columns.items()}
    table = table.drop_columns([name for name in columns if name in table.column_names])
    for name, column in taken.items():
        table = table.append_column(name, column)
    return table
