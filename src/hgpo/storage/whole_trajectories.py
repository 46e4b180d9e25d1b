"""From the rows that could be read to a `StepBatch`: trajectories with a damaged or missing step are left out.

A trajectory without one of its steps has the wrong returns and the wrong histories, so it goes as a whole, and a
`Notice` names the first row that is the reason. Only where the rows make no batch is each trajectory looked at by
itself; what is wrong with it is what `StepBatch.from_columns` and `hgpo.storage.step_batches` say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from hgpo.columns import ColumnError
from hgpo.steps import StepBatch
from hgpo.storage.problems import Problems, StorageError, place_of
from hgpo.storage.step_batches import IN_ALL_ROWS_OR_NONE, missing_value, step_batch_from_table, stored_columns

Faults = dict[int, tuple[str, str]]
"""Rows that cannot be part of a whole trajectory, and the (kind, message) of what is wrong with each."""

_UNFINISHED = "the end of its trajectory is in the part that cannot be read"


def whole_trajectories(
    table: pa.Table, numbers: Sequence[int], problems: Problems
) -> tuple[StepBatch | None, pa.Table]:
    """The batch of all undamaged trajectories, None where nothing is left, and the rows that it is made of.

    Args:
        table: the rows that could be read.
        numbers: the number of each row in the file.
        problems: what was wrong while they were read; takes what is left out here.

    Raises:
        StorageError: a column that is needed is missing, or the trajectories make no batch together.
    """
    stored = stored_columns(table, problems.file.name)
    faults = _unfinished(table) if problems.rows_are_lost else {}
    if problems.faulty:
        faults |= {row: problems.faulty[number] for row, number in enumerate(numbers) if number in problems.faulty}
    table, numbers = _without(faults, table, numbers, problems)
    try:
        return _batch(table), table
    except ValueError:
        table, numbers = _without(_damaged(table, stored, numbers, problems), table, numbers, problems)
    try:
        return _batch(table), table
    except ValueError as error:
        raise StorageError(f"the readable rows make no batch: {error}", problems.file) from error


def _batch(table: pa.Table) -> StepBatch | None:
    return step_batch_from_table(table) if table.num_rows else None


def _without(
    faults: Faults, table: pa.Table, numbers: Sequence[int], problems: Problems
) -> tuple[pa.Table, Sequence[int]]:
    """The rows of trajectories that have no fault, and their numbers; the other trajectories are noted."""
    if not faults:
        return table, numbers
    trajectory = [_key(value) for value in table.column("trajectory").to_pylist()]
    for row, problem in faults.items():
        problems.left_out(trajectory[row], numbers[row], problem)
    lost = {trajectory[row] for row in faults}
    kept = [row for row in range(len(trajectory)) if trajectory[row] not in lost]
    return table.take(pa.array(kept, pa.int64())), [numbers[row] for row in kept]


def _unfinished(table: pa.Table) -> Faults:
    """The last readable row of each trajectory that does not say that it ended, in a file that says so of others."""
    ended = [table.column(name).to_pylist() for name in ("terminated", "truncated") if name in table.column_names]
    last: dict[Any, tuple[int, int]] = {}
    places = zip(table.column("trajectory").to_pylist(), table.column("step").to_pylist(), strict=True)
    for row, (trajectory, step) in enumerate(places if ended else ()):
        if isinstance(step, int):
            last[_key(trajectory)] = max(last.get(_key(trajectory), (step, row)), (step, row))
    return {row: (_UNFINISHED, _UNFINISHED) for _, row in last.values() if not any(column[row] for column in ended)}


def _damaged(table: pa.Table, stored: Mapping[str, str], numbers: Sequence[int], problems: Problems) -> Faults:
    """The first wrong row of each trajectory that makes no batch by itself."""
    values = {name: table.column(key).to_pylist() for name, key in stored.items()}
    rows_of: defaultdict[Any, list[int]] = defaultdict(list)
    for row, trajectory in enumerate(values["trajectory"]):
        rows_of[_key(trajectory)].append(row)
    faults: Faults = {}
    for rows in rows_of.values():
        columns = {name: [column[row] for row in rows] for name, column in values.items()}
        places = [place_of(problems.file.name, numbers[row]) for row in rows]
        try:
            for name in IN_ALL_ROWS_OR_NONE.keys() & columns.keys():
                if None in columns[name]:
                    raise missing_value(name, stored[name], columns[name].index(None))
            StepBatch.from_columns(**columns)
        except ColumnError as error:
            message = error.message_at(places.__getitem__).removeprefix(f"{places[error.row]}: ")
            faults[rows[error.row]] = (f"column {error.column!r}", message)
    return faults


def _key(value: Any) -> Any:
    """The value, or its text where it cannot be compared with others by its hash."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
