"""From the rows that could be read to a `StepBatch`: trajectories with a damaged or missing step are left out.

A trajectory without one of its steps has the wrong returns and the wrong histories, so it goes as a whole, and a
`Notice` names the first row that is the reason. Rows are looked at one by one only where they make no batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hgpo.columns import ColumnError, intern, reals, truths, whole_numbers
from hgpo.steps import StepBatch
from hgpo.storage.problems import Problems, StorageError
from hgpo.storage.schema import BATCH_COLUMNS
from hgpo.storage.step_batches import IN_ALL_ROWS_OR_NONE, step_batch_from_table, stored_columns

Faults = dict[int, tuple[str, str]]
"""Rows that cannot be part of a whole trajectory, and the (kind, message) of what is wrong with each."""

_UNFINISHED = "the end of its trajectory is in the part that cannot be read"
_TWICE = "a step of its trajectory is there twice"
_TWO_GROUPS = "its trajectory is in two groups"
_GAP = "an earlier step of its trajectory is missing"


def whole_trajectories(
    table: pa.Table, numbers: Sequence[int], problems: Problems
) -> tuple[StepBatch | None, pa.Table]:
    """The batch of all undamaged trajectories, None where nothing is left, and the rows that it is made of.

    Args:
        table: the rows that could be read.
        numbers: the number of each row in the file.
        problems: what was wrong while they were read; takes what is left out here.

    Raises:
        StorageError: a column that is needed is missing.
    """
    stored = stored_columns(table, problems.file.name)
    faults: Faults = _unfinished(table) if problems.rows_are_lost else {}
    if problems.faulty:
        faults |= {row: problems.faulty[number] for row, number in enumerate(numbers) if number in problems.faulty}
    table, numbers = _without(faults, table, numbers, problems)
    batch = _batch(table)
    if isinstance(batch, ValueError):
        faults = _damaged({name: table.column(key).to_pylist() for name, key in stored.items()})
        table, numbers = _without(faults, table, numbers, problems)
        batch = _batch(table)
    if isinstance(batch, ValueError):
        raise StorageError(f"the readable rows make no batch: {batch}", problems.file)
    return batch, table


def _batch(table: pa.Table) -> StepBatch | ValueError | None:
    """The batch of these rows, or why they make none."""
    try:
        return step_batch_from_table(table) if table.num_rows else None
    except ValueError as error:
        return error


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


def _damaged(values: Mapping[str, Sequence[Any]]) -> Faults:
    """Rows with a value that no batch takes, and the last row of each trajectory whose steps are not 0..T-1."""
    faults = {row: fault for name, column in values.items() for row, fault in _refused(name, column)}
    steps: dict[Any, dict[int, int]] = {}
    groups: dict[Any, Any] = {}
    for row, (trajectory, step, group) in enumerate(
        zip(values["trajectory"], values["step"], values["group"], strict=True)
    ):
        if row in faults:
            continue
        if step in steps.setdefault(trajectory, {}):
            faults[row] = (_TWICE, _TWICE)
        elif groups.setdefault(trajectory, group) != group:
            faults[row] = (_TWO_GROUPS, _TWO_GROUPS)
        steps[trajectory][step] = row
    for found in steps.values():
        if len(found) != max(found) + 1:
            faults.setdefault(found[max(found)], (_GAP, _GAP))
    return faults


def _refused(name: str, values: Sequence[Any]) -> Iterator[tuple[int, tuple[str, str]]]:
    """The rows whose value in a column of the batch is wrong by itself."""
    if _problem(name, values):
        for row, value in enumerate(values):
            if problem := _problem(name, [value]):
                yield row, (f"column {name!r}", f"column {name!r}: {problem}")


def _problem(name: str, values: Sequence[Any]) -> str:
    """What is wrong with one of the values, as `StepBatch.from_columns` and `hgpo.storage.step_batches` have it."""
    if name in IN_ALL_ROWS_OR_NONE and None in values:
        return "missing value, though other rows have one"
    try:
        if name == "step":
            whole_numbers(name, list(values))
        elif name == "success":
            truths(name, list(values))
        elif name in ("reward", "penalty", "value"):
            negative = (reals(name, list(values)) < 0).any()
            return "is subtracted, so it must be at least 0" if negative and name == "penalty" else ""
        else:
            intern(name, list(values), allow_none=name not in BATCH_COLUMNS)
    except ColumnError as error:
        return error.problem
    return ""


def _key(value: Any) -> Any:
    """The value, or its text where it cannot be compared with others by its hash."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
