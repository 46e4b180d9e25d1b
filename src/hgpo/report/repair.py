"""From the rows that could be read to a `StepBatch`: trajectories with a damaged or missing step are left out.

A trajectory without one of its steps has the wrong returns and the wrong histories, so it goes as a whole, and a
`Notice` names the first row that is the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hgpo.report.reading import Notice, ReadFile
from hgpo.steps import StepBatch
from hgpo.storage.tables import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS


def whole_trajectories(file: ReadFile, name: str) -> tuple[StepBatch | None, list[int], list[Notice]]:
    """The batch of all undamaged trajectories, the rows of `file` it is made of, and what was left out.

    The batch is None where nothing is left. `name` is the file's name in the notices. An optional column without a
    single value counts as not there, as in `hgpo.storage.step_batches`.
    """
    file = replace(file, columns={name: values for name, values in file.columns.items() if not _is_empty(name, values)})
    missing = [column for column in BATCH_COLUMNS if column not in file.columns]
    if not len(file):
        return None, [], []
    if missing:
        needed = ", ".join(BATCH_COLUMNS)
        return None, [], [Notice(f"has no column {', '.join(missing)}; needed are {needed}", name, file.row_number[0])]
    rows = list(range(len(file)))
    notices: list[Notice] = []
    if file.cut:
        rows, notices = _keep(file, name, rows, _unfinished)
    try:
        return _batch(file, rows), rows, notices
    except ValueError:
        rows, damaged = _keep(file, name, rows, _damaged)
    if not rows:
        return None, [], [*notices, *damaged]
    try:
        return _batch(file, rows), rows, [*notices, *damaged]
    except ValueError as error:
        return None, [], [*notices, *damaged, Notice(f"the readable rows make no batch: {error}", name)]


def _is_empty(name: str, values: Sequence[Any]) -> bool:
    return name in OPTIONAL_BATCH_COLUMNS and all(value is None for value in values)


def _batch(file: ReadFile, rows: Sequence[int]) -> StepBatch:
    names = [name for name in (*BATCH_COLUMNS, *OPTIONAL_BATCH_COLUMNS) if name in file.columns]
    columns = {name: [file.columns[name][row] for row in rows] for name in names}
    if "success" not in columns and "won" in file.columns:
        columns["success"] = [bool(file.columns["won"][row]) for row in rows]
    return StepBatch.from_columns(**columns)


def _keep(
    file: ReadFile, name: str, rows: Sequence[int], faults: Callable[[ReadFile, Sequence[int]], dict[int, str]]
) -> tuple[list[int], list[Notice]]:
    """Leave out every trajectory that has a row in `faults`; one notice per kind of fault."""
    faulty = faults(file, rows)
    trajectory = [_key(value) for value in file.columns["trajectory"]]
    lost = {trajectory[row] for row in faulty}
    kept = [row for row in rows if trajectory[row] not in lost]
    first: dict[str, int] = {}
    count: dict[str, set[Any]] = {}
    for row, problem in faulty.items():
        first.setdefault(problem, row)
        count.setdefault(problem, set()).add(trajectory[row])
    return kept, [
        Notice(
            f"{problem}; {_trajectories(len(count[problem]))} left out of the comparisons of its task",
            name,
            file.row_number[row],
        )
        for problem, row in first.items()
    ]


def _trajectories(count: int) -> str:
    return "its trajectory is" if count == 1 else f"{count} trajectories for this reason are"


def _damaged(file: ReadFile, rows: Sequence[int]) -> dict[int, str]:
    """Rows with a value that no batch takes, and the last row of each trajectory whose steps are not 0..T-1."""
    faults: dict[int, str] = {}
    steps: dict[Any, dict[int, int]] = {}
    group: dict[Any, Any] = {}
    for row in rows:
        problem = _value_problem(file, row)
        if problem is None:
            trajectory, step = file.columns["trajectory"][row], int(file.columns["step"][row])
            if step in steps.setdefault(trajectory, {}):
                problem = "a step of its trajectory is there twice"
            elif group.setdefault(trajectory, file.columns["group"][row]) != file.columns["group"][row]:
                problem = "its trajectory is in two groups"
            steps[trajectory][step] = row
        if problem is not None:
            faults[row] = problem
    for found in steps.values():
        if len(found) != max(found) + 1 or min(found) < 0:
            faults.setdefault(found[max(found)], "an earlier step of its trajectory is missing")
    return faults


def _value_problem(file: ReadFile, row: int) -> str | None:
    for name in BATCH_COLUMNS:
        if file.columns[name][row] is None:
            return f"column '{name}' is empty"
    for name, values in file.columns.items():
        value = values[row]
        if name in ("reward", "penalty", "value", "step") and value is not None:
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                return f"column '{name}' is not a finite number"
            if (name == "penalty" and value < 0) or (name == "step" and (value < 0 or value != int(value))):
                return f"column '{name}' is out of its range"
        elif name == "success" and value is None:
            return "column 'success' is empty, though other rows have it"
        elif name in ("penalty", "value") or not _hashable(value):
            return f"column '{name}' holds {type(value).__name__}, which is no value for it"
    return None


def _unfinished(file: ReadFile, rows: Sequence[int]) -> dict[int, str]:
    """The last readable row of each trajectory that does not say that it ended, in a file that says so of others."""
    ended = [file.columns[name] for name in ("terminated", "truncated") if name in file.columns]
    if not ended:
        return {}
    last: dict[Any, int] = {}
    for row in rows:
        trajectory, step = _key(file.columns["trajectory"][row]), file.columns["step"][row]
        seen = last.get(trajectory)
        if isinstance(step, int) and (seen is None or step > file.columns["step"][seen]):
            last[trajectory] = row
    return {
        row: "the end of its trajectory is in the part that cannot be read"
        for row in last.values()
        if not any(column[row] for column in ended)
    }


def _key(value: Any) -> Any:
    return value if _hashable(value) else repr(value)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
