"""Stored columns as the estimators' input, and the trajectories that remain of a damaged file.

A missing value (the key is absent or null)

- in `action` and `next_observation` means None: no action, or no next observation;
- in `truncated` means False (if some value is neither true nor false, the whole column is ignored);
- in `penalty`, `value`, `bootstrap`, `success` (or `won`), `prompt` and `response_log_prob` is an error if any row has
  a value, because no default is correct; a column without any value counts as absent;
- in a required column is an error.

A trajectory's id may be unique only within its group, and steps may be counted from 1. If two groups have the same step
of a trajectory, group and trajectory together are the id. If there is no step 0 and most trajectories have a step 1, 1
is subtracted.

A trajectory without one of its steps has wrong returns and histories, so `undamaged_trajectories` leaves it out as a
whole, with a notice that names the first row that is the reason.

Shapes: N rows, U distinct values.
"""

from __future__ import annotations

import re
import reprlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgpo.columns import ColumnError, intern
from hgpo.keys import canonical_json, comparison_key
from hgpo.steps import StepBatch
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    KEY_COLUMNS,
    OPTIONAL_BATCH_COLUMNS,
    Problems,
    StorageError,
    place_of,
    truth,
)
from hgpo.storage.tables import joined_ids, python_values

_IN_ALL_ROWS_OR_NONE = {
    "penalty": "write 0 where nothing is subtracted",
    "value": "write the critic's estimate of every step",
    "bootstrap": "write 0 except on the last step of a trajectory that a time limit cut",
    "success": "write true or false in every row",
    "prompt": "write the prompt of every step",
    "response_log_prob": "write the log of the probability of every response",
}
"""Optional columns in which a missing value has no meaning, and what to write instead."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_ARRAY = re.compile(
    r"\s*(?:array\(|tensor\()?\[(?:[\s\d.,+\-e\[\]()=_]|array|tensor|torch|dtype|b?float|u?int|True|False|nan|inf)*"
)
"""An array as numpy or torch print it, without the quoted texts in it."""
_ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-fA-F]+>")
"""An object as Python prints it if its class says nothing of its content."""
_REPETITIVE = ("group", "trajectory", "observation", "action", "next_observation")  # prompts are nearly all different
_UNFINISHED = "the end of its trajectory is in the part that cannot be read"

Faults = dict[int, tuple[str, str]]
"""Damaged rows, and the (kind, message) of the problem of each."""


def step_batch_from_table(table: pa.Table, file: Path | None = None) -> StepBatch:
    """The estimators' input from stored columns; `won`, as in this project's rollouts, is read as `success`.

    Args:
        table: One row per step. The module's docstring describes missing values.
        file: Where the table was read from, for messages.

    Raises:
        StorageError: A column is missing, or Python's types cannot hold a nested time.
        ValueError: As `StepBatch.from_columns`; a `ColumnError` if a column has values in some rows only.
    """
    values, first_step = _identified(_column_values(table, _stored_columns(table, file), file))
    seen = values["observation"]
    if len(seen) and all(isinstance(text, str) and _ADDRESS.search(text) for text in seen):
        problem = "has an object's address, as in all rows, so equal states would be different: write its content"
        raise ColumnError("observation", 0, f"{reprlib.repr(seen[0])} {problem}")
    return _batch_of(values, first_step)


def _column_values(table: pa.Table, stored: Mapping[str, str], file: Path | None) -> dict[str, Any]:
    """The values of the columns that `_stored_columns` found."""
    values = {}
    for name, key in stored.items():
        column = table.column(key)
        if name in _IN_ALL_ROWS_OR_NONE and column.null_count:
            remedy = f"{_IN_ALL_ROWS_OR_NONE[name]}, or leave the column out of all rows"
            row = int(np.argmax(column.is_null().to_numpy()))
            raise ColumnError(key, row, f"missing value, though other rows have one; {remedy}")
        values[name] = _values(table, key, name, file)
    return values


def _batch_of(values: Mapping[str, Any], first_step: int) -> StepBatch:
    """The batch of identified columns, whose steps were counted from `first_step` in the file.

    Raises:
        ValueError: As `StepBatch.from_columns`, or an observation was printed incompletely.
    """
    _check_complete(values)
    try:
        return StepBatch.from_columns(**values)
    except ColumnError as error:
        if not first_step or error.column != "step" or values["step"][error.row] is None:
            raise
        raise ColumnError("step", error.row, f"counted from 0, {error.problem}", error.other_row) from error


def _identified(values: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The columns with trajectory ids that are unique and steps from 0, and the first step in the file, 0 or 1.

    See the module's docstring.
    """
    found = dict(values)
    try:
        step_N = np.asarray(values["step"])
        if step_N.dtype.kind in "US":  # `StepBatch` rejects text
            return found, 0
        step_N = step_N.astype(np.float64)
        group_N, _ = intern("group", values["group"], allow_none=True)
        trajectory_N, _ = intern("trajectory", values["trajectory"], allow_none=True)
    except (ValueError, TypeError):  # `StepBatch` names the row
        return found, 0
    order_N = np.lexsort((step_N, trajectory_N))
    trajectory_N, group_N, step_N = trajectory_N[order_N], group_N[order_N], step_N[order_N]
    is_repeated = (np.diff(trajectory_N) == 0) & (np.diff(step_N) == 0)
    if (is_repeated & (np.diff(group_N) != 0)).any():
        found["trajectory"] = joined_ids(values["group"], values["trajectory"])
        trajectory_N = group_N * (trajectory_N[-1] + 1) + trajectory_N
    if step_N.size and np.fmin.reduce(step_N) == 1:  # NaN for a missing step
        begun = len(np.unique(trajectory_N[step_N == 1]))
        if 2 * begun > len(np.unique(trajectory_N)):
            found["step"] = [None if step is None else step - 1 for step in values["step"]]
            return found, 1
    return found, 0


def _check_complete(values: Mapping[str, Any]) -> None:
    """Reject texts of printed arrays whose middle is left out: other arrays may have the same text."""
    for name in ("observation", "next_observation"):
        column = values.get(name, ())
        column = column.tolist() if isinstance(column, np.ndarray) else column
        try:
            distinct = set(column)
        except TypeError:  # a nested value of a damaged row
            distinct = {value for value in column if isinstance(value, str)}
        cut = {text for text in distinct if isinstance(text, str) and "..." in text and _is_cut(text)}
        if cut:
            row = next(row for row, value in enumerate(column) if isinstance(value, str) and value in cut)
            raise ColumnError(
                name,
                row,
                f"{reprlib.repr(column[row])} is a printed array without its middle, so different states would be "
                "equal: write text, or print whole arrays with numpy.set_printoptions(threshold=sys.maxsize)",
            )


def _is_cut(text: str) -> bool:
    bare = _QUOTED.sub("", text)
    return "..." in bare and _ARRAY.fullmatch(bare) is not None


def undamaged_trajectories(
    table: pa.Table, numbers: Sequence[int], problems: Problems
) -> tuple[StepBatch | None, pa.Table]:
    """The batch of all undamaged trajectories, None if there are none, and its rows.

    Args:
        table: The rows that could be read.
        numbers: The number of each row in the file.
        problems: The problems found while reading; records what is left out here.

    Raises:
        StorageError: A required column is missing, or the trajectories do not form a batch together.
    """
    stored = _stored_columns(table, problems.file)
    faults = _unfinished(table) if problems.rows_are_lost else {}
    if problems.faulty:
        faults |= {row: problems.faulty[number] for row, number in enumerate(numbers) if number in problems.faulty}
    table, numbers = _without(faults, table, numbers, problems)
    try:
        return _batch(table), table
    except ValueError:  # only then is each trajectory checked by itself
        table, numbers = _without(_damaged(table, stored, numbers, problems), table, numbers, problems)
    try:
        return _batch(table), table
    except ValueError as error:
        raise StorageError(f"the readable rows do not form a batch: {error}", problems.file) from error


def _stored_columns(table: pa.Table, file: Path | None) -> dict[str, str]:
    """The columns of a batch that the table has, and the name of each in the table."""
    names = [name for name in (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS) if name in table.column_names]
    stored = {name: name for name in names if name not in _IN_ALL_ROWS_OR_NONE or not _is_empty(table.column(name))}
    if "success" not in stored and "won" in table.column_names and not _is_empty(table.column("won")):
        stored["success"] = "won"
    if "truncated" in stored and _truths(table.column("truncated")) is None:
        del stored["truncated"]  # of another meaning, such as a number of tokens
    missing = [name for name in BATCH_COLUMNS if name not in stored]
    if missing:
        raise StorageError(
            f"no column {', '.join(missing)}. The file has {', '.join(table.column_names) or 'no columns'}; "
            f"--column {missing[0]}=KEY reads it from another. Needed are {', '.join(BATCH_COLUMNS)}, optional "
            f"{', '.join(OPTIONAL_BATCH_COLUMNS)}{_conversation_hint(table)}",
            file,
        )
    return stored


def _conversation_hint(table: pa.Table) -> str:
    """How to read rows that are conversations under another key than `messages`."""
    lists = [field.name for field in table.schema if pa.types.is_list(field.type) or pa.types.is_large_list(field.type)]
    return f". If {lists[0]} is a conversation: --column messages={lists[0]}" if lists else ""


def _truths(column: pa.ChunkedArray) -> list[bool] | None:
    """The truth values of a column, False where one is missing; None where one is neither true nor false."""
    try:
        return [value is not None and truth(value) for value in column.to_pylist()]
    except (ValueError, TypeError, OverflowError):
        return None


def _is_empty(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count == len(column))


def _values(table: pa.Table, key: str, name: str, file: Path | None) -> Any:
    column = table.column(key)
    if name == "truncated":
        return _truths(column)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not column.null_count:  # with nulls, integers would become floats, and None NaN
        return column.to_numpy()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if name in _REPETITIVE and (is_text or pa.types.is_dictionary(column.type)) and len(column):
        return _shared_values(column)
    values = python_values(table, key, file)
    if pa.types.is_nested(column.type) and name in KEY_COLUMNS:
        return [value if value is None else canonical_json(value) for value in values]
    return values


def _shared_values(column: pa.ChunkedArray) -> np.ndarray:
    """The column as objects, one per distinct value: less memory than one per row, and faster to compare."""
    encoded = (column if pa.types.is_dictionary(column.type) else column.dictionary_encode()).unify_dictionaries()
    values = [*encoded.chunk(0).dictionary.to_pylist(), None]  # the None is for missing values
    value_U = np.empty(len(values), dtype=object)
    value_U[:] = values
    indices = [chunk.indices.cast(pa.int64()).fill_null(len(values) - 1).to_numpy() for chunk in encoded.chunks]
    shared_N: np.ndarray = value_U[np.concatenate(indices)]
    return shared_N


def _batch(table: pa.Table) -> StepBatch | None:
    return step_batch_from_table(table) if table.num_rows else None


def _without(
    faults: Faults, table: pa.Table, numbers: Sequence[int], problems: Problems
) -> tuple[pa.Table, Sequence[int]]:
    """The rows of trajectories without a fault, and their numbers; records the other trajectories."""
    if not faults:
        return table, numbers
    trajectory = _trajectories(table)
    for row, problem in faults.items():
        problems.left_out(trajectory[row], numbers[row], problem)
    lost = {trajectory[row] for row in faults}
    kept = [row for row in range(len(trajectory)) if trajectory[row] not in lost]
    return table.take(pa.array(kept, pa.int64())), [numbers[row] for row in kept]


def _unfinished(table: pa.Table) -> Faults:
    """The last readable row of each trajectory that is not marked as ended, in a file that marks ends."""
    names = [name for name in ("terminated", "truncated") if name in table.column_names]
    ended = [truths for name in names if (truths := _truths(table.column(name))) is not None]
    if len(ended) < len(names) or "terminated" not in names:  # `truncated` alone marks only some ends
        return {}
    last: dict[Any, tuple[int, int]] = {}
    places = zip(_trajectories(table), python_values(table, "step"), strict=True)
    for row, (trajectory, step) in enumerate(places):
        if isinstance(step, int):
            last[trajectory] = max(last.get(trajectory, (step, row)), (step, row))
    return {row: (_UNFINISHED, _UNFINISHED) for _, row in last.values() if not any(column[row] for column in ended)}


def _damaged(table: pa.Table, stored: Mapping[str, str], numbers: Sequence[int], problems: Problems) -> Faults:
    """The first wrong row of each trajectory that does not form a batch by itself."""
    ids, first_step = _ids(table)
    for name in ("trajectory", "step"):
        table = table.set_column(table.column_names.index(name), name, pa.array(ids[name]))
    rows_of: defaultdict[Any, list[int]] = defaultdict(list)
    for row, trajectory in enumerate(map(_key, ids["trajectory"])):
        rows_of[trajectory].append(row)
    faults: Faults = {}
    for rows in rows_of.values():
        places = [place_of(problems.file.name, numbers[row]) for row in rows]
        try:
            _batch_of(_column_values(table.take(pa.array(rows, pa.int64())), stored, problems.file), first_step)
        except ColumnError as error:
            message = error.message_at(places.__getitem__).removeprefix(f"{places[error.row]}: ")
            faults[rows[error.row]] = (f"column {error.column!r}", message)
    return faults


def _ids(table: pa.Table) -> tuple[dict[str, Any], int]:
    """Group, trajectory and step of each row, and the first step, as `_identified` makes them."""
    return _identified({name: python_values(table, name) for name in ("group", "trajectory", "step")})


def _trajectories(table: pa.Table) -> list[Any]:
    """The id of each row's trajectory, unique in the table."""
    return list(map(_key, _ids(table)[0]["trajectory"]))


def _key(value: Any) -> Any:
    """A hashable value that is equal for equal values."""
    try:
        return comparison_key(value)
    except ValueError:  # of no use as an id, which `StepBatch` reports with its row
        return id(value)
