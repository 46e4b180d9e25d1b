"""Files with one trajectory per line (or row of parquet), as a table of steps; see docs/own-data.md.

    {"group": "task 7", "trajectory": 0, "reward": 1.0, "messages": [{"role": "user", "content": "…"}, …]}
    {"group": "task 7", "trajectory": 1, "steps": [{"observation": "…", "action": "…", "reward": 0.0}, …]}

In a conversation the assistant's turns are actions, and the messages of the user or a tool before one are its
observation. A line is used as a whole, or left out with a message that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.conversations import Step, steps_of_conversation
from hgpo.storage.schema import (
    Problems,
    StorageError,
    converted,
    identifier,
    number,
    place_of,
    reward_number,
    suffix_of,
    text,
    text_or_json,
    truth,
)
from hgpo.storage.tables import joined_ids, python_rows, read_lines, read_parquet

KEYS = ("group", "trajectory", "messages", "steps", "reward", "rewards", "success")
"""The keys of a line, unless others were chosen; `conversations` is read as `messages`."""

_STEP_COLUMNS: Mapping[str, tuple[Callable[[Any], Any], pa.DataType]] = {
    "observation": (text_or_json, pa.large_string()),
    "reward": (reward_number, pa.float64()),
    "action": (text_or_json, pa.large_string()),
    "response": (text, pa.large_string()),
    "prompt": (text, pa.large_string()),
    "penalty": (number, pa.float64()),
    "value": (number, pa.float64()),
    "bootstrap": (number, pa.float64()),
    "response_log_prob": (number, pa.float64()),
    "truncated": (text_or_json, pa.large_string()),  # ignored if it has another meaning
    "success": (truth, pa.bool_()),
    "next_observation": (text_or_json, pa.large_string()),
}
"""The columns of a step: how a value is converted, and its type in the table."""
STEP_KEYS = tuple(_STEP_COLUMNS)
"""The keys of an object in `steps`, unless others were chosen."""


def read_trajectories(path: Path, keys: Mapping[str, str], problems: Problems) -> tuple[pa.Table, list[int]]:
    """The steps of one file, and for each the number of its trajectory's line or row of parquet.

    The trajectory's id must be unique only within its group: the table has those of `joined_ids`.

    Args:
        path: A JSONL, JSON or parquet file.
        keys: Names of `KEYS` and `STEP_KEYS` -> their keys in the file, where these differ.
        problems: Records trajectories that cannot be read.

    Raises:
        StorageError: No line, or no step, has one of the chosen keys.

    Returns:
        The columns group, trajectory, step, observation, reward; the other `STEP_KEYS` where any step has one. Steps
        have the success of their trajectory: its own, or whether any of its steps has it.
    """
    lines, numbers = _rows(path, problems)
    steps: list[Step] = []
    numbers_N: list[int] = []
    first: dict[tuple[str, str], int] = {}
    step_keys: set[str] = set()
    for line, at in zip(lines, numbers, strict=True):
        try:
            found = _trajectory(line, keys, f"{path.name}:{at}", step_keys)
            whose = found[0]["group"], found[0]["trajectory"]
            if (earlier := first.setdefault(whose, at)) != at:
                raise ValueError(
                    f"same group and trajectory as {place_of(path.name, earlier)}; give every trajectory of a group "
                    "its own id"
                )
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            problems.lost(at, str(error))
            continue
        steps += found
        numbers_N += [at] * len(found)
    for name, key in keys.items():
        known = {*chain.from_iterable(lines if name in KEYS else ()), *(step_keys if name in STEP_KEYS else ())}
        if steps and key not in known:
            raise StorageError(f"no key {key} for {name}; there are {', '.join(sorted(known)) or 'none'}", path)
    return _table(steps), numbers_N


def _rows(path: Path, problems: Problems) -> tuple[list[dict[str, Any]], Sequence[int]]:
    if suffix_of(path) != ".parquet":
        return read_lines(path, problems)
    rows = python_rows(read_parquet(path), path)
    return rows, range(len(rows))


def _trajectory(
    written: Mapping[str, Any], keys: Mapping[str, str], default_id: str, step_keys: set[str]
) -> list[Step]:
    """The steps of one line; adds the keys of its `steps` to `step_keys`."""
    line = {name: written.get(keys.get(name, name)) for name in KEYS}
    if line["messages"] is None and "messages" not in keys:
        line["messages"] = written.get("conversations")
    if line["group"] is None:
        raise ValueError(
            f"no {_named('group', keys)}: write the id of the task, the same in all its trajectories{_found(written)}"
        )
    if (line["steps"] is None) == (line["messages"] is None):
        which = f"neither{_found(written)}" if line["steps"] is None else "both; remove one"
        raise ValueError(f"needs either {_named('steps', keys)} or {_named('messages', keys)}, and has {which}")
    if line["messages"] is not None:
        steps = steps_of_conversation(_list(line["messages"], _named("messages", keys)))
    else:
        given = _list(line["steps"], _named("steps", keys))
        steps = [_step(step, keys, f"step {place}") for place, step in enumerate(given)]
        step_keys.update(*given)
    if not steps:
        raise ValueError("no step: a trajectory without steps has no advantage; remove the line")
    _reward(steps, line, keys)
    ids = {"group": line["group"], "trajectory": default_id if line["trajectory"] is None else line["trajectory"]}
    shared: Step = {name: converted(value, identifier, _named(name, keys)) for name, value in ids.items()}
    own = [step["success"] for step in steps if "success" in step]
    if line["success"] is not None:
        if own:
            raise ValueError(f"{_named('success', keys)} is in the line and in its steps; remove one")
        own = [converted(line["success"], truth, _named("success", keys))]
    if own:
        shared["success"] = any(own)
    return [{"step": place, **step, **shared} for place, step in enumerate(steps)]


def _step(value: Any, keys: Mapping[str, str], where: str) -> Step:
    if not isinstance(value, dict):
        raise TypeError(f"{where} is not an object: {value!r:.60}")
    found = {name: value.get(keys.get(name, name)) for name in STEP_KEYS}
    if found["observation"] is None:
        raise ValueError(f"{where} has no {_named('observation', keys)}{_found(value)}")
    return {
        name: converted(found[name], convert, f"{where}, {keys.get(name, name)}")
        for name, (convert, _) in _STEP_COLUMNS.items()
        if found[name] is not None
    }


def _found(written: Mapping[str, Any]) -> str:
    """The keys of an object and how to read another one, for messages."""
    return f". It has {', '.join(written) or 'no keys'}; --column NAME=KEY reads a column from another key"


def _reward(steps: list[Step], line: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Set the reward of every step from the one source that the line has."""
    final, each = _named("reward", keys), _named("rewards", keys)
    own = sum("reward" in step for step in steps)
    sources = [name for name, value in ((final, line["reward"]), (each, line["rewards"])) if value is not None]
    if own:
        sources.append("rewards of the steps themselves")
    if len(sources) != 1:
        found = f"has {' and '.join(sources)}" if sources else "no reward"
        raise ValueError(
            f"{found}: give one of {final} (of the whole trajectory), {each} (one per step), or a reward in each step"
            + ("; --column reward=success takes the success" if not sources and line["success"] is not None else "")
        )
    if line["rewards"] is not None:
        rewards = [converted(value, reward_number, each) for value in _list(line["rewards"], each)]
        if len(rewards) != len(steps):
            raise ValueError(f"{each} has {len(rewards)} numbers for {len(steps)} steps")
    elif own:
        if own < len(steps):
            lacking = next(place for place, step in enumerate(steps) if "reward" not in step)
            raise ValueError(f"step {lacking} has no reward, though others have one; write 0 where there is none")
        return
    else:
        rewards = [0.0] * (len(steps) - 1) + [converted(line["reward"], reward_number, final)]
    for step, reward in zip(steps, rewards, strict=True):
        step["reward"] = reward


def _table(steps: list[Step]) -> pa.Table:
    if not steps:
        return pa.table({})
    kinds = {"group": pa.large_string(), "trajectory": pa.large_string(), "step": pa.int32()}
    kinds |= {name: kind for name, (_, kind) in _STEP_COLUMNS.items()}
    present = {name for step in steps for name in step}
    columns = {name: pa.array([step.get(name) for step in steps], kinds[name]) for name in kinds if name in present}
    ids = joined_ids(columns["group"].to_pylist(), columns["trajectory"].to_pylist())
    return pa.table(columns | {"trajectory": pa.array(ids, pa.large_string())})


def _list(value: Any, name: str) -> list[Any]:
    """A list, or the list in JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = converted(value, json.loads, f"{name} as JSON")
    if not isinstance(value, list):
        raise TypeError(f"{name} is not a list: {value!r:.60}")
    return value


def _named(name: str, keys: Mapping[str, str]) -> str:
    """The key in the file, for messages."""
    return repr(keys.get(name, name))
