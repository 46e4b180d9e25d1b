"""Rollouts as files: one row per step, parquet or JSONL, with a schema version.

Text columns hold untrusted model and environment output; whoever shows them escapes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hgpo.files import whole_file
from hgpo.rollout.records import StepRecord
from hgpo.steps import StepBatch

SCHEMA_VERSION = 1
VERSION_KEY = b"hgpo_schema_version"
BATCH_COLUMNS = ("group", "trajectory", "step", "observation", "reward")
OPTIONAL_BATCH_COLUMNS = ("action", "prompt", "penalty", "value", "next_observation", "success")

_REPETITIVE = ("group", "trajectory", "observation", "action", "next_observation")  # prompts are nearly all different

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


class StorageError(ValueError):
    """A rollout file is missing, damaged or of another schema; the message names file and place."""


def write_rollouts(path: Path, steps: Sequence[StepRecord], extra: Mapping[str, np.ndarray] | None = None) -> None:
    """Write ``steps`` (and float columns such as advantages, each [N]) to ``path``, whole or not at all."""
    columns: dict[str, pa.Array] = {}
    for column in fields(StepRecord):
        kind = _ARROW_TYPES.get(column.name, pa.large_string())
        columns[column.name] = pa.array([_plain(getattr(step, column.name)) for step in steps], type=kind)
    for name, values in (extra or {}).items():
        columns[name] = pa.array(values)
    write_table(path, pa.table(columns))


def write_table(path: Path, table: pa.Table) -> None:
    """Write any table with the schema version, by way of a temporary file, so that readers never see half of it."""
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), VERSION_KEY: str(SCHEMA_VERSION).encode()})
    with whole_file(path) as partial:
        if path.suffix == ".jsonl":
            rows = ({"schema_version": SCHEMA_VERSION, **row} for row in table.to_pylist())
            partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        else:
            pq.write_table(table, partial, compression="zstd")


def read_table(path: Path) -> pa.Table:
    """All steps in ``path``: a parquet or JSONL file, a folder of them, or a run directory.

    Raises ``StorageError`` for what is missing, damaged, or of another schema version.
    """
    tables = [_read_file(file) for file in rollout_files(path)]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def rollout_files(path: Path) -> list[Path]:
    """The rollout files that ``path`` stands for, in order of name."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise StorageError(f"no such file or folder: {path}")
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")])
    if not files:
        raise StorageError(f"{folder} holds no rollouts (*.parquet, *.jsonl)")
    return files


def step_batch_from_table(table: pa.Table, source: str = "rollouts") -> StepBatch:
    """The estimator's input from stored columns; this project's rollouts say ``won`` for ``success``.

    A missing column is a ``StorageError``.
    """
    if "success" not in table.column_names and "won" in table.column_names:
        table = table.append_column("success", table.column("won"))
    missing = [name for name in BATCH_COLUMNS if name not in table.column_names]
    if missing:
        raise StorageError(
            f"{source}: no column {', '.join(missing)}; needed are {', '.join(BATCH_COLUMNS)}, "
            f"optional {', '.join(OPTIONAL_BATCH_COLUMNS)}"
        )
    optional = {name: _values(table, name) for name in OPTIONAL_BATCH_COLUMNS if name in table.column_names}
    required = {name: _values(table, name) for name in BATCH_COLUMNS}
    return StepBatch.from_columns(**required, **optional)


def _read_file(path: Path) -> pa.Table:
    if path.suffix == ".jsonl":
        return pa.Table.from_pylist(list(_read_jsonl(path)))
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{path} cannot be read as parquet: {error}") from error
    version = (table.schema.metadata or {}).get(VERSION_KEY)
    if version is not None and version != str(SCHEMA_VERSION).encode():
        raise StorageError(f"{path} has schema version {version.decode()}; this release reads {SCHEMA_VERSION}")
    return table


def _read_jsonl(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise StorageError(f"{path} line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise StorageError(f"{path} line {number} is not an object")
            version = row.pop("schema_version", SCHEMA_VERSION)
            if version != SCHEMA_VERSION:
                raise StorageError(
                    f"{path} line {number} has schema version {version}; this release reads {SCHEMA_VERSION}"
                )
            yield row


def _values(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy()
    repeats = _is_text(column.type) or pa.types.is_dictionary(column.type)
    if name in _REPETITIVE and repeats and len(column):
        return _shared_values(column)
    return column.to_pylist()


def _shared_values(column: pa.ChunkedArray) -> np.ndarray:
    """The column as objects, equal values being one object: less memory, and faster to compare, than one per row."""
    encoded = (column if pa.types.is_dictionary(column.type) else column.dictionary_encode()).unify_dictionaries()
    values = [*encoded.chunk(0).dictionary.to_pylist(), None]  # the None is for missing values
    value_U = np.empty(len(values), dtype=object)
    value_U[:] = values
    indices = [chunk.indices.cast(pa.int64()).fill_null(len(values) - 1).to_numpy() for chunk in encoded.chunks]
    shared_N: np.ndarray = value_U[np.concatenate(indices)]
    return shared_N


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(value: Any) -> Any:
    return value if not isinstance(value, str) else value.encode("utf-8", "replace").decode()
