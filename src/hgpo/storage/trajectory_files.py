"""From the rows that could be read to a `StepBatch`: trajectories with a damaged or missing step are left out.

A trajectory without one of its steps has the wrong returns and the wrong histories, so it goes as a whole, and a
`Notice` names the first row that is the reason. Only where the rows make no batch is each trajectory looked at by
itself; what is wrong with it is what `StepBatch.from_columns` and `hgpo.storage.step_batches` say.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.columns import ColumnError
from hgpo.steps import StepBatch
from hgpo.storage.schema import Problems, StorageError, place_of, suffix_of
from hgpo.storage.step_batches import IN_ALL_ROWS_OR_NONE, missing_value, step_batch_from_table, stored_columns
from hgpo.storage.tables import read_lines, read_parquet
from hgpo.storage.verl_dumps import identifier, number, text, text_or_json, truth

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


# Files with one trajectory a line (or row of parquet), as a rollout table. docs/own-data.md is the format's page.
#
#     {"group": "task 7", "trajectory": 0, "reward": 1.0, "messages": [{"role": "user", "content": "…"}, …]}
#     {"group": "task 7", "trajectory": 1, "steps": [{"observation": "…", "action": "…", "reward": 0.0}, …]}
#
# In a conversation the assistant's turns are actions, and what the user or a tool says before one is its observation.
#  A
# line is read as a whole or, with a message that names it, not at all.
#
# Shapes: T steps of a trajectory.


KEYS = ("group", "trajectory", "messages", "steps", "reward", "rewards", "success")
"""What a trajectory has, under these names or those that were chosen."""

_OF_STEPS: Mapping[str, tuple[Callable[[Any], Any], pa.DataType]] = {
    "observation": (text_or_json, pa.large_string()),
    "reward": (number, pa.float64()),
    "action": (text_or_json, pa.large_string()),
    "response": (text, pa.large_string()),
    "prompt": (text, pa.large_string()),
    "penalty": (number, pa.float64()),
    "value": (number, pa.float64()),
    "next_observation": (text_or_json, pa.large_string()),
}
"""What a step may have; how a value is read; as what it is kept."""

_PASSED_OVER = ("system", "developer")
_OBSERVING = ("user", "tool", "function")
_ACTING = "assistant"

Step = dict[str, Any]


def read_trajectories(path: Path, keys: Mapping[str, str], problems: Problems) -> tuple[pa.Table, list[int]]:
    """The steps of one file, and for each of them the number of its trajectory's line, or row of parquet.

    The trajectory's id becomes `<group>/<trajectory>`, so it need only be unique within its group.

    Args:
        path: a JSONL or parquet file.
        keys: those of `KEYS` that have another name in the file.
        problems: takes trajectories that cannot be read.

    Returns:
        group, trajectory, step, observation, reward; action, response, prompt, penalty, value, next_observation and
        success where any step has one.
    """
    lines, numbers = _rows(path, problems)
    steps: list[Step] = []
    numbers_N: list[int] = []
    first: dict[str, int] = {}
    for line, at in zip(lines, numbers, strict=True):
        try:
            found = _trajectory({name: line.get(keys.get(name, name)) for name in KEYS}, keys, f"{path.name}:{at}")
            whose = found[0]["trajectory"]
            if (earlier := first.setdefault(whose, at)) != at:
                raise ValueError(
                    f"group and trajectory are those of {place_of(path.name, earlier)}, too; give every trajectory "
                    "of a group an id of its own"
                )
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            problems.lost(at, str(error))
            continue
        steps += found
        numbers_N += [at] * len(found)
    return _table(steps), numbers_N


def _rows(path: Path, problems: Problems) -> tuple[list[dict[str, Any]], Sequence[int]]:
    if suffix_of(path) == ".jsonl":
        return read_lines(path, problems)
    table, numbers = read_parquet(path, problems)
    return table.to_pylist(), numbers


def _trajectory(line: Mapping[str, Any], keys: Mapping[str, str], default_id: str) -> list[Step]:
    """The steps of one line, with all their columns. `line` has None for what is not there."""
    if line["group"] is None:
        raise ValueError(f"no {_named('group', keys)}: say which task it is, as all trajectories of the task do")
    if (line["steps"] is None) == (line["messages"] is None):
        which = "neither" if line["steps"] is None else "both"
        raise ValueError(f"needs {_named('steps', keys)} or {_named('messages', keys)}, and has {which}")
    if line["messages"] is not None:
        steps = steps_of_conversation(_list(line["messages"], _named("messages", keys)))
    else:
        steps = [_step(step, f"step {place}") for place, step in enumerate(_list(line["steps"], _named("steps", keys)))]
    if not steps:
        raise ValueError("no step: an agent that did nothing has no advantage; leave the line out")
    _reward(steps, line, keys)
    group = identifier(line["group"])
    trajectory = default_id if line["trajectory"] is None else identifier(line["trajectory"])
    shared: Step = {"group": group, "trajectory": f"{group}/{trajectory}"}
    if line["success"] is not None:
        shared["success"] = _read(line["success"], truth, _named("success", keys))
    return [{**shared, "step": place, **step} for place, step in enumerate(steps)]


def _step(value: Any, where: str) -> Step:
    if not isinstance(value, dict):
        raise TypeError(f"{where} is no object but {value!r:.60}")
    if value.get("observation") is None:
        raise ValueError(f"{where} has no observation; there are {', '.join(value) or 'no keys'}")
    return {
        name: _read(value[name], convert, f"{where}, {name}")
        for name, (convert, _) in _OF_STEPS.items()
        if value.get(name) is not None
    }


def steps_of_conversation(messages: list[Any]) -> list[Step]:
    """One step for each of the assistant's turns; what comes after the last one is what it led to."""
    steps: list[Step] = []
    heard: list[str] = []
    for place, message in enumerate(messages):
        where = f"message {place}"
        role = message.get("role") if isinstance(message, dict) else None
        if role in _OBSERVING:
            heard.append(_content(message, where))
        elif role == _ACTING:
            if not heard:
                raise ValueError(f"{where}: the assistant speaks, and no observation comes before it")
            step = {"observation": "\n".join(heard), "action": _action(message, where)}
            if message.get("reward") is not None:
                step["reward"] = _read(message["reward"], number, f"{where}, reward")
            steps.append(step)
            heard = []
        elif role not in _PASSED_OVER:
            known = ", ".join((*_PASSED_OVER, *_OBSERVING, _ACTING))
            raise ValueError(f"{where} has the role {role!r:.60}; roles are {known}")
    for step, after in pairwise(steps):
        step["next_observation"] = after["observation"]
    if steps and heard:
        steps[-1]["next_observation"] = "\n".join(heard)
    return steps


def _action(message: Mapping[str, Any], where: str) -> str:
    """What the assistant says and, as JSON, the tools that it calls."""
    calls = message.get("tool_calls") or message.get("function_call")
    said = "" if message.get("content") is None else _content(message, where)  # an answer may be empty
    if not calls:
        return said
    called = text(json.dumps(calls, sort_keys=True, ensure_ascii=False))
    return f"{said}\n{called}" if said else called


def _content(message: Mapping[str, Any], where: str) -> str:
    """The text of a message; parts that are no text stay JSON."""
    content = message.get("content")
    if content is None:
        raise ValueError(f"{where} has no content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(_read(part.get("text"), text, f"{where}, content") for part in content)
    return str(_read(content, text_or_json, f"{where}, content"))


def _reward(steps: list[Step], line: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Give every step its reward, of which there is one source."""
    final, each = _named("reward", keys), _named("rewards", keys)
    own = sum("reward" in step for step in steps)
    sources = [name for name, there in ((final, line["reward"]), (each, line["rewards"])) if there is not None]
    if own:
        sources.append("rewards of the steps themselves")
    if len(sources) != 1:
        found = f"has {' and '.join(sources)}" if sources else "no reward"
        raise ValueError(
            f"{found}: give {final}, of the whole trajectory, or {each}, one for each step, or a reward with each step"
        )
    if line["rewards"] is not None:
        rewards = [_read(value, number, each) for value in _list(line["rewards"], each)]
        if len(rewards) != len(steps):
            raise ValueError(f"{each} has {len(rewards)} numbers for {len(steps)} steps")
    elif own:
        if own < len(steps):
            lacking = next(place for place, step in enumerate(steps) if "reward" not in step)
            raise ValueError(f"step {lacking} has no reward, though others have one; write 0 where there is none")
        return
    else:
        rewards = [0.0] * (len(steps) - 1) + [_read(line["reward"], number, final)]
    for step, reward in zip(steps, rewards, strict=True):
        step["reward"] = reward


def _table(steps: list[Step]) -> pa.Table:
    if not steps:
        return pa.table({})
    kinds = {"group": pa.large_string(), "trajectory": pa.large_string(), "step": pa.int32()}
    kinds |= {name: kind for name, (_, kind) in _OF_STEPS.items()} | {"success": pa.bool_()}
    there = {name for step in steps for name in step}
    columns = {name: pa.array([step.get(name) for step in steps], kinds[name]) for name in kinds if name in there}
    return pa.table(columns)


def _read(value: Any, convert: Callable[[Any], Any], where: str) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from error


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list but {value!r:.60}")
    return value


def _named(name: str, keys: Mapping[str, str]) -> str:
    """What a key is called in messages."""
    return repr(keys.get(name, name))
