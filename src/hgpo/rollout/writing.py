"""Step records as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgpo.rollout.records import StepRecord
from hgpo.storage.schema import UPDATE_KEY
from hgpo.storage.writing import append_rows, write_table

_ARROW_TYPES: dict[str, pa.DataType] = {
    "step": pa.int32(),
    "valid": pa.bool_(),
    "admissible": pa.bool_(),
    "reward": pa.float64(),
    "penalty": pa.float64(),
    "won": pa.bool_(),
    "score": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "finished": pa.bool_(),
    "forgotten": pa.int32(),
    "prompt_ids": pa.list_(pa.int32()),
    "token_ids": pa.list_(pa.int32()),
    "log_probs": pa.list_(pa.float32()),
}


def write_rollouts(
    path: Path, steps: Sequence[StepRecord], extra: Mapping[str, np.ndarray] | None = None, update: int | None = None
) -> None:
    """Write `steps` (and float columns such as advantages, each [N]) to `path`, whole or not at all.

    `update` is the one that they were collected for, if any; parquet keeps it.
    """
    columns = _columns(steps)
    for name, values in (extra or {}).items():
        columns[name] = pa.array(values)
    metadata = None if update is None else {UPDATE_KEY: str(update)}
    write_table(path, pa.table(columns).replace_schema_metadata(metadata))


def append_rollouts(path: Path, steps: Sequence[StepRecord]) -> None:
    """Add `steps` to a JSONL file."""
    append_rows(path, pa.table(_columns(steps)))


def _columns(steps: Sequence[StepRecord]) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for column in fields(StepRecord):
        kind = _ARROW_TYPES.get(column.name, pa.large_string())
        columns[column.name] = pa.array([_plain(getattr(step, column.name)) for step in steps], type=kind)
    return columns


def _plain(value: Any) -> Any:
    return value if not isinstance(value, str) else value.encode("utf-8", "replace").decode()
