"""JSONL files that verl writes to `trainer.rollout_data_dir` and `trainer.validation_data_dir`, as a table of steps.

One file per update, `<update>.jsonl`, one row per model response. Source: the code of verl 0.9.1 and verl-agent.

- Every row has `input`, `output`, `score` (sum of the response's token rewards), `step` (the trainer's global step: an
  *update* here) and, in verl, `gts` (ground truth).
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.schema import Problems, StorageError, identifier, number, place_of, text, text_or_json, truth, whole
from hgpo.storage.tables import read_lines

COLUMNS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any], pa.DataType]] = {
    "update": (("step",), whole, pa.int64()),  # the trainer's global step
    "group": (("uid",), identifier, pa.large_string()),
    "trajectory": (("traj_uid",), identifier, pa.large_string()),  # this and `step`: needed unless the uid is compound
    "step": (("step_index",), whole, pa.int32()),
    "observation": (("anchor_obs",), text_or_json, pa.large_string()),  # without memory or template
    "reward": (("step_reward", "rewards"), number, pa.float64()),
    "final_reward": ((), number, pa.float64()),  # if chosen, replaces `reward`: given to the last step
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

_IDS = ("update", "group", "trajectory", "step")
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

    Group and trajectory ids become `u<update>/<group>` and `u<update>/<group>/<trajectory>`, so that updates never mix
    and a trajectory's id must be unique only within its group.

    Args:
        path: A JSONL file.
        keys: Columns of `COLUMNS` that are read from another key, which must occur.
        problems: Records rows that cannot be read or identified, and values that cannot be used.

    Returns:
        The columns update, group, trajectory, step, observation, reward, prompt, response; score, action, penalty,
        valid, success and next_observation where the dump has them; dump_file and dump_line: the row's file and line.

    Raises:
        StorageError: A needed key is in no row, or keys contradict each other.
    """
    dump = _Dump(*read_lines(path, problems), keys, problems)
    dump = dump.subset([at for at, row in enumerate(dump.rows) if not is_padding(row)])
    dump, ids = _identified(dump) if dump.rows else (dump, [])
    if not dump.rows:
        return pa.table({}), []
    trajectory_N = [f"u{update}/{group}/{trajectory}" for update, group, trajectory, _ in ids]
    columns: dict[str, list[Any]] = {
        "update": [update for update, *_ in ids],
        "group": [f"u{update}/{group}" for update, group, *_ in ids],
        "trajectory": trajectory_N,
        "step": [step for *_, step in ids],
    }
    for name in (*_NEEDED, *filter(dump.has, _OPTIONAL)):
        is_final = name == "reward" and "final_reward" in keys
        columns[name] = _final_rewards(dump, trajectory_N, columns["step"]) if is_final else dump.read(name)
    _check_steps_differ(dump, trajectory_N, columns["observation"])
    table = pa.table({name: pa.array(values, COLUMNS[name][2]) for name, values in columns.items()})
    table = table.append_column("dump_file", pa.array([path.name] * len(ids), pa.large_string()))
    return table.append_column("dump_line", pa.array(dump.numbers, pa.int64())), dump.numbers


def compound_uid(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Prompt uuid, session and index in a row of verl's trainer V1; None in rows of other trainers."""
    match = _match(_COMPOUND, row)
    return None if match is None else (match[1], match[2], match[3])


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

    def subset(self, places: Sequence[int]) -> _Dump:
        return replace(self, rows=[self.rows[at] for at in places], numbers=[self.numbers[at] for at in places])

    def error(self, at: int, message: str) -> StorageError:
        """An error about the whole file; names the row as an example."""
        return StorageError(message, self.problems.file, self.numbers[at])

    def place(self, at: int) -> str:
        """File and line of a row, for messages."""
        return place_of(self.problems.file, self.numbers[at])

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys that may contain a column."""
        return (self.chosen[name],) if name in self.chosen else COLUMNS[name][0]

    def has(self, name: str) -> bool:
        """Whether a column can be read: its key was chosen, or one of the usual keys occurs."""
        return name in self.chosen or self._key(name) is not None

    def read(self, name: str) -> list[Any]:
        """A column's converted values; None for a missing value and, with a problem recorded, an unusable one.

        A row without readable ids is lost. Text stays text and other values become JSON, so ids and observations must
        be text in all rows or in none.
        """
        key, convert = self._key(name), COLUMNS[name][1]
        if key is None:
            raise self.error(0, self._missing(name, self.keys(name), self.rows[0]))
        report = self.problems.lost if name in _IDS else self.problems.fault
        must_be_text = convert in (identifier, text_or_json) and any(isinstance(row.get(key), str) for row in self.rows)
        values = [None] * len(self.rows)
        for at, (line, row) in enumerate(zip(self.numbers, self.rows, strict=True)):
            value = row.get(key)
            if value is None:
                if name != "next_observation" or key not in row:  # absent after the last step
                    report(line, self._missing(name, (key,), row), kind=f"no {name}")
                continue
            try:
                converted = convert(value)
                if must_be_text and not isinstance(value, str):
                    raise TypeError(f"expected text, as in other rows, got {value!r}")
                values[at] = converted
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
        return f"no {name}: {missing}. Name another key ({name}=KEY){_REMEDIES.get(name, '')}"


def _identified(dump: _Dump) -> tuple[_Dump, list[tuple[int, str, str, int]]]:
    """The rows with ids, without copies; update, group, trajectory and step of each."""
    update_N = dump.read("update")
    _check_updates(dump, update_N)
    parts = _compound_uids(dump)
    found: dict[str, list[Any]] = {"update": update_N}
    for place, name in enumerate(("group", "trajectory", "step")):
        has_own_key = name in dump.chosen or (name != "group" and dump.has(name))
        if parts and not has_own_key:
            found[name] = [int(part[place]) if name == "step" else part[place] for part in parts]
        else:
            found[name] = dump.read(name)
    ids = list(zip(*found.values(), strict=True))
    kept = _without_copies(dump, ids)
    return dump.subset(kept), [ids[at] for at in kept]


def _check_updates(dump: _Dump, update_N: Sequence[int | None]) -> None:
    """verl names a file after its update; another number inside means that `step` has another meaning."""
    name, stem = dump.problems.file.name, dump.problems.file.stem
    if "update" in dump.chosen or not stem.isdecimal():
        return
    for at, update in enumerate(update_N):
        if update not in (None, int(stem)):
            raise dump.error(
                at,
                f"'step' is {update}, but verl writes the number of the update there, and the file is named {name}. "
                "If reward_extra_info has a key 'step', rename it to 'step_index'",
            )


def _compound_uids(dump: _Dump) -> list[tuple[str, str, str]]:
    """(prompt uuid, session, index) of each row of verl's trainer V1, [] for dumps of other trainers."""
    found = list(map(compound_uid, dump.rows))
    parts = [ids for ids in found if ids is not None]
    if parts and len(parts) < len(found):
        odd = found.index(None)
        raise dump.error(
            odd,
            f"uid {dump.rows[odd].get('uid')!r} is not of the form <uuid>_<session>_<index>, but others are: read the "
            "dumps of each trainer separately",
        )
    return parts


def _without_copies(dump: _Dump, ids: Sequence[tuple[Any, ...]]) -> list[int]:
    """The rows with ids that repeat no earlier one; the same step with different content is a fault."""
    first: dict[tuple[Any, ...], int] = {}
    kept = []
    for at, row_ids in enumerate(ids):
        earlier = first.setdefault(row_ids, at)
        if None in row_ids or (earlier != at and dump.rows[earlier] == dump.rows[at]):
            continue
        kept.append(at)
        if earlier != at:
            whose = "update {}, group {}, trajectory {} already has a step {}".format(*row_ids)
            message = f"{whose} in {dump.place(earlier)}, with other content"
            dump.problems.fault(dump.numbers[at], message, kind="a step twice")
    return kept


def _check_steps_differ(dump: _Dump, trajectory_N: Sequence[str], observation_N: Sequence[str]) -> None:
    """Reject trainer V1's validation dumps with extra info: all steps have the values of the last one."""
    if "reward" not in dump.rows[0] or compound_uid(dump.rows[0]) is None:
        return
    seen: dict[str, set[str]] = {}
    for trajectory, observation in zip(trajectory_N, observation_N, strict=True):
        seen.setdefault(trajectory, set()).add(observation)
    if len(seen) < len(dump.rows) and all(len(observations) == 1 for observations in seen.values()):
        raise dump.error(
            0,
            "all steps of each trajectory have the same observation. verl's trainer V1 writes the extra info of the "
            "last response into all rows of a validation dump, so it cannot tell steps apart; read training dumps "
            "instead",
        )


def _final_rewards(dump: _Dump, trajectory_N: Sequence[str], step_N: Sequence[int]) -> list[float | None]:
    """The final reward at the last step of each trajectory, and 0 before."""
    final_N = dump.read("final_reward")
    last: dict[str, int] = {}
    for at, trajectory in enumerate(trajectory_N):
        other = last.setdefault(trajectory, at)
        if None not in (final_N[other], final_N[at]) and final_N[other] != final_N[at]:
            message = (
                f"{dump.chosen['final_reward']} of trajectory {trajectory} is {final_N[at]}, but {final_N[other]} in "
                f"{dump.place(other)}; a final reward must be the same in all its steps"
            )
            dump.problems.fault(dump.numbers[at], message, kind="final rewards")
        if step_N[at] > step_N[other]:
            last[trajectory] = at
    ends = set(last.values())
    return [reward if at in ends else 0.0 for at, reward in enumerate(final_N)]


def _match(pattern: re.Pattern[str], row: Mapping[str, Any]) -> re.Match[str] | None:
    uid = row.get("uid")
    return pattern.fullmatch(uid) if isinstance(uid, str) else None
