"""JSONL files that verl writes to `trainer.rollout_data_dir` and `trainer.validation_data_dir`, as a table of steps.

One file per update, `<update>.jsonl`, one row per model response. Source: the code of verl 0.9.1 and verl-agent.

- Every row has `input`, `output`, `score` (sum of the response's token rewards), `step` (the update, as in the file's
  name) and, in verl, `gts` (ground truth).
- Trainer V1 (verl's default) adds `uid` = `<prompt uuid>_<session>_<index>`: group, trajectory and step in one key.
  Rows that only fill up the batch have a uid that begins with `pad`; they are left out. `score` is the last response's
  in all rows of a trajectory. Training dumps have no other keys. Validation dumps add `reward` (= `score`) and the keys
  of `reward_extra_info`, but with the values of the *last* response in all rows of its trajectory.
- Trainer V0 and verl-agent add the keys of `reward_extra_info` row by row, and ids only if these are among them. Values
  that JSON does not know are written as text ("1.0", "True"), large arrays with their middle left out, so observations
  should be text. verl-agent repeats random rows to fill up the batch; a row equal to an earlier one is left out.

If the dump lacks a key that a step needs, the error names the key and how to make verl write it.

Shapes: N rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.schema import Problems, StorageError, identifier, number, place_of, text, text_or_json, truth, whole
from hgpo.storage.tables import joined_ids, read_lines

COLUMNS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any], pa.DataType]] = {
    "group": (("uid",), identifier, pa.large_string()),
    "trajectory": (("traj_uid",), identifier, pa.large_string()),  # this and `step`: needed unless the uid is compound
    "step": (("step_index",), whole, pa.int32()),
    "observation": (("anchor_obs",), text_or_json, pa.large_string()),  # without memory or template
    "reward": (("step_reward", "rewards"), number, pa.float64()),
    "final_reward": ((), number, pa.float64()),  # if chosen, replaces `reward`: the last step's is given to that step
    "prompt": (("input",), text, pa.large_string()),
    "response": (("output",), text, pa.large_string()),
    "score": (("score",), number, pa.float64()),  # this and the following columns are optional
    "action": (("action",), text, pa.large_string()),
    "penalty": (("penalty",), number, pa.float64()),
    "valid": (("is_action_valid",), truth, pa.bool_()),
    "success": (("success", "won"), truth, pa.bool_()),
    "next_observation": (("next_observation",), text_or_json, pa.large_string()),
}
"""Per column: the keys that may contain it (one of them), how a value is converted, its type in the table."""

_IDS = ("group", "trajectory", "step")
_NEEDED = ("observation", "reward", "prompt", "response")
_OPTIONAL = ("score", "action", "penalty", "valid", "success", "next_observation")
_COMPOUND = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_(\d+)_(\d+)")
_PADDING = re.compile(r"pad[0-9a-f]{32}_\d+_0")
_REMEDY = (
    ", or have verl write it: verl-agent and verl's trainer V0 write the keys of reward_extra_info (from the reward "
    "manager, or set in the agent loop's extra_fields); trainer V1 writes only uid, so let a subclass of the trainer "
    "add the key to reward_extra_infos_dict in _dump_generations"
)
_REMEDIES = {
    "group": _REMEDY,
    "trajectory": _REMEDY,
    "step": _REMEDY + ". (verl's own 'step' is the number of the update)",
    "observation": _REMEDY + ". observation=input compares whole prompts instead",
    "reward": _REMEDY + ". final_reward=score gives each trajectory's score to its last step",
}


def read_dump(path: Path, keys: Mapping[str, str], problems: Problems) -> tuple[pa.Table, list[int]]:
    """The steps of one dump, without padding and repeated rows, and the numbers of their lines.

    The trajectory's id must be unique only within its group: the table has those of `joined_ids`.

    Args:
        path: A JSONL file.
        keys: Columns of `COLUMNS` that are read from another key, which must occur.
        problems: Records rows that cannot be read or identified, and values that cannot be used.

    Returns:
        The columns group, trajectory, step, observation, reward, prompt, response; score, action, penalty, valid,
        success and next_observation where the dump has them; dump_line: the row's line.

    Raises:
        StorageError: A needed key is in no row, two keys contain the same column, or the dump is of a validation whose
            steps cannot be distinguished.
    """
    found = [row for row in zip(*read_lines(path, problems), strict=True) if not is_padding(row[0])]
    if not found:
        return pa.table({}), []
    dump, ids = _identified(_Dump([row for row, _ in found], [line for _, line in found], keys, problems))
    if not ids:
        return pa.table({}), []
    groups, trajectories, steps = zip(*ids, strict=True)
    columns: dict[str, Sequence[Any]] = {"group": groups, "trajectory": joined_ids(groups, trajectories), "step": steps}
    for name in (*_NEEDED, *filter(dump.has, _OPTIONAL)):
        is_final = name == "reward" and "final_reward" in keys
        columns[name] = _final_rewards(dump, ids) if is_final else dump.read(name)
    _check_steps_differ(dump, columns)
    table = pa.table({name: pa.array(values, COLUMNS[name][2]) for name, values in columns.items()})
    return table.append_column("dump_line", pa.array(dump.numbers, pa.int64())), dump.numbers


def compound_uid(row: Mapping[str, Any]) -> tuple[str, str, int] | None:
    """Prompt uuid, session and index in a row of verl's trainer V1; None in rows of other trainers."""
    match = _match(_COMPOUND, row)
    return None if match is None else (match[1], match[2], int(match[3]))


def is_padding(row: Mapping[str, Any]) -> bool:
    """Whether the row only fills up verl's batch."""
    return _match(_PADDING, row) is not None


@dataclass(frozen=True, slots=True)
class _Dump:
    """Rows of a dump, their line numbers, the chosen keys by column, and the problems of the file."""

    rows: list[dict[str, Any]]
    numbers: list[int]
    chosen: Mapping[str, str]
    problems: Problems

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys that may contain a column."""
        return (self.chosen[name],) if name in self.chosen else COLUMNS[name][0]

    def has(self, name: str) -> bool:
        """Whether a column can be read: its key was chosen, or one of the usual keys occurs."""
        return name in self.chosen or self._key(name) is not None

    def read(self, name: str) -> list[Any]:
        """A column's converted values; None for a missing value and, with a problem recorded, an unusable one.

        A row without readable ids is lost. Text stays text and other values become JSON.
        """
        key, convert = self._key(name), COLUMNS[name][1]
        if key is None:
            message = self._missing(name, self.keys(name), self.rows[0])
            raise StorageError(message, self.problems.file, self.numbers[0])
        report = self.problems.lost if name in _IDS else self.problems.fault
        values = [None] * len(self.rows)
        for at, (line, row) in enumerate(zip(self.numbers, self.rows, strict=True)):
            value = row.get(key)
            if value is None:
                if name != "next_observation" or key not in row:  # absent after the last step
                    report(line, self._missing(name, (key,), row), kind=f"no {name}")
                continue
            try:
                values[at] = convert(value)
            except (ValueError, TypeError, OverflowError) as error:
                report(line, f"key {key!r} ({name}): {error}", kind=f"key {key!r}")
        return values

    def _key(self, name: str) -> str | None:
        """The key of a column that occurs, None if no row has one."""
        present = [key for key in self.keys(name) if any(key in row for row in self.rows)]
        if len(present) > 1:
            raise StorageError(f"both {' and '.join(present)} occur; choose one with --column", self.problems.file)
        return present[0] if present else None

    def _missing(self, name: str, keys: Sequence[str], row: Mapping[str, Any]) -> str:
        wanted = " or ".join(map(repr, keys)) or "no key"
        missing = f"{wanted} is missing or null; the row has {', '.join(row)}"
        return f"no {name}: {missing}. Name another key (--column {name}=KEY){_REMEDIES.get(name, '')}"


def _identified(dump: _Dump) -> tuple[_Dump, list[tuple[str, str, int]]]:
    """The rows with ids that repeat no earlier one; group, trajectory and step of each."""
    uids = [uid for row in dump.rows if (uid := compound_uid(row)) is not None]
    found: list[list[Any]] = []
    for place, name in enumerate(_IDS):
        has_own_key = name in dump.chosen or (name != "group" and dump.has(name))
        is_compound = len(uids) == len(dump.rows) and not has_own_key
        found.append([uid[place] for uid in uids] if is_compound else dump.read(name))
    first: dict[tuple[Any, ...], int] = {}
    kept: dict[int, tuple[str, str, int]] = {}
    for at, ids in enumerate(zip(*found, strict=True)):
        earlier = first.setdefault(ids, at)
        if None in ids or (earlier != at and dump.rows[earlier] == dump.rows[at]):
            continue
        kept[at] = ids
        if earlier != at:
            whose = "group {}, trajectory {} already has a step {}".format(*ids)
            message = f"{whose} in {place_of(dump.problems.file, dump.numbers[earlier])}, with other content"
            dump.problems.fault(dump.numbers[at], message, kind="a step twice")
    rows, numbers = [dump.rows[at] for at in kept], [dump.numbers[at] for at in kept]
    return _Dump(rows, numbers, dump.chosen, dump.problems), list(kept.values())


def _check_steps_differ(dump: _Dump, columns: Mapping[str, Sequence[Any]]) -> None:
    """Reject trainer V1's validation dumps with extra info: all steps have the values of the last one."""
    trajectories = set(columns["trajectory"])
    pairs = set(zip(columns["trajectory"], columns["observation"], strict=True))
    is_validation = "reward" in dump.rows[0] and compound_uid(dump.rows[0]) is not None
    if is_validation and len(pairs) == len(trajectories) < len(dump.rows):
        raise StorageError(
            "all steps of each trajectory have the same observation. verl's trainer V1 writes the extra info of the "
            "last response into all rows of a validation dump, so it cannot tell steps apart; read training dumps "
            "instead",
            dump.problems.file,
        )


def _final_rewards(dump: _Dump, ids: Sequence[tuple[str, str, int]]) -> list[float | None]:
    """The final reward of each trajectory's last step there, and 0 before."""
    last: dict[tuple[str, str], int] = {}
    for group, trajectory, step in ids:
        last[group, trajectory] = max(step, last.get((group, trajectory), step))
    final_N = dump.read("final_reward")
    return [final if step == last[g, t] else 0.0 for final, (g, t, step) in zip(final_N, ids, strict=True)]


def _match(pattern: re.Pattern[str], row: Mapping[str, Any]) -> re.Match[str] | None:
    uid = row.get("uid")
    return pattern.fullmatch(uid) if isinstance(uid, str) else None
