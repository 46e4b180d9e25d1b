"""The values of verl's dumps, which keep what JSON does not know as text.

Each function raises TypeError or ValueError for what it cannot convert.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.storage.schema import Problems, StorageError, place_of
from hgpo.storage.tables import read_lines

_TRUTHS = {"True": True, "true": True, "False": False, "false": False}  # as Python and JSON spell them


def identifier(value: object) -> str:
    """An id as text; it has to be text that UTF-8 can hold, or an integer."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"expected text or an integer as an id, got {value!r}")
    return str(value).encode("utf-8").decode()  # a replacement, as in `text`, might make two ids one


def text(value: object) -> str:
    """Text that UTF-8 can hold; what it cannot becomes a question mark."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()


def text_or_json(value: object) -> str:
    """Text as it is, any other JSON value as JSON text with sorted keys."""
    return text(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False))


def number(value: object) -> float:
    """A finite number, which may have been written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"expected a number, got {value!r}")
    if not isfinite(converted := float(value)):
        raise ValueError(f"expected a finite number, got {value!r}")
    return converted


def whole(value: object) -> int:
    """An integer of at least 0 and below 2**31."""
    if (converted := number(value)) != int(converted) or not 0 <= converted < 2**31:
        raise ValueError(f"expected an integer of at least 0 and below 2**31, got {value!r}")
    return int(converted)


def truth(value: object) -> bool:
    """true, false, 1, 0, or the text of one of them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if (converted := number(value)) not in (0.0, 1.0):
        raise ValueError(f"expected true or false, got {value!r}")
    return converted == 1.0


# The JSONL files that verl writes to `trainer.rollout_data_dir` and `trainer.validation_data_dir`, as a rollout
# table.
#
# One file per update, `<update>.jsonl`, one row per model response. Read from the sources of verl 0.9.1 and verl-
# agent:
#
# - Every row has `input`, `output`, `score` (sum of the response's token rewards), `step` (the trainer's global step:
#  an
#   *update* here) and, in verl, `gts` (ground truth).
# - Trainer V1 (verl's default) adds `uid` = `<prompt uuid>_<session>_<index>`: group, trajectory and step in one key.
#   Rows that only fill up the batch have a uid that begins with `pad`; they are left out. `score` is the last
#   response's
#   in all rows of a trajectory. Nothing else is written in training. In validation, `reward` (= `score`) and the keys
#    of
#   `reward_extra_info` follow, but those of the *last* response, in all rows of its trajectory.
# - Trainer V0 and verl-agent add the keys of `reward_extra_info`, row by row, and no id unless it is among them.
# Values
#   that JSON does not know are written as text ("1.0", "True"), large arrays with their middle left out: let
#   observations
#   be text. verl-agent repeats random rows to fill up the batch; a row equal to an earlier one in everything is left
#   out.
#
# What a step needs and the dump does not have is an error that says which key is missing and how verl comes to write
# it.
#
# Shapes: N rows.


COLUMNS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any], pa.DataType]] = {
    "update": (("step",), whole, pa.int64()),  # the trainer's global step
    "group": (("uid",), identifier, pa.large_string()),
    "trajectory": (("traj_uid",), identifier, pa.large_string()),  # this and `step`: needed unless the uid is compound
    "step": (("step_index",), whole, pa.int32()),
    "observation": (("anchor_obs",), text_or_json, pa.large_string()),  # without memory or template
    "reward": (("step_reward", "rewards"), number, pa.float64()),
    "final_reward": ((), number, pa.float64()),  # for `reward`: the trajectory's, given to its last step; on request
    "prompt": (("input",), text, pa.large_string()),
    "response": (("output",), text, pa.large_string()),
    "score": (("score",), number, pa.float64()),  # this and what follows is read where it occurs
    "action": (("action",), text, pa.large_string()),
    "penalty": (("penalty",), number, pa.float64()),
    "valid": (("is_action_valid",), truth, pa.bool_()),
    "success": (("success", "won"), truth, pa.bool_()),
    "next_observation": (("next_observation",), text_or_json, pa.large_string()),
}
"""The keys that may hold a column, whichever occurs; how a value is read; as what it is kept."""

_IDS = ("update", "group", "trajectory", "step")
_NEEDED = ("observation", "reward", "prompt", "response")
_OPTIONAL = ("score", "action", "penalty", "valid", "success", "next_observation")
_COMPOUND = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})_(\d+)_(\d+)")
_PADDING = re.compile(r"pad[0-9a-f]{32}_\d+_0")
_REMEDY = (
    ", or have verl write it: verl-agent and verl's trainer V0 write the keys of reward_extra_info (from the reward "
    "manager, or set in the agent loop's extra_fields); trainer V1 writes uid alone, so let a subclass of the trainer "
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
    and a trajectory's id need only be unique within its group.

    Args:
        path: a JSONL file.
        keys: columns of `COLUMNS` that are read from another key, which then has to occur.
        problems: takes rows that cannot be read or identified, and values that cannot be used.

    Returns:
        update, group, trajectory, step, observation, reward, prompt, response; score, action, penalty, valid, success
        and next_observation where the dump has them; dump_file and dump_line, where the row comes from.

    Raises:
        StorageError: something that is needed is in no row, or keys contradict each other.
    """
    dump = _Dump(*read_lines(path, problems), keys, problems)
    dump = dump.taken([at for at, row in enumerate(dump.rows) if not _match(_PADDING, row)])
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


@dataclass(frozen=True, slots=True)
class _Dump:
    """Rows of a dump, the numbers of their lines, the keys that were chosen, and what is wrong."""

    rows: list[dict[str, Any]]
    numbers: list[int]
    chosen: Mapping[str, str]
    problems: Problems

    def taken(self, places: Sequence[int]) -> _Dump:
        """Some of the rows."""
        return replace(self, rows=[self.rows[at] for at in places], numbers=[self.numbers[at] for at in places])

    def error(self, at: int, message: str) -> StorageError:
        """An error about the whole file that the row at this place shows."""
        return StorageError(message, self.problems.file, self.numbers[at])

    def place(self, at: int) -> str:
        """Where a row is, for messages."""
        return place_of(self.problems.file, self.numbers[at])

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys that may hold a column."""
        return (self.chosen[name],) if name in self.chosen else COLUMNS[name][0]

    def has(self, name: str) -> bool:
        """Whether a column is to be read: its key was chosen, or one of the usual ones occurs."""
        return name in self.chosen or self._key(name) is not None

    def read(self, name: str) -> list[Any]:
        """A column's values, converted; None where there is none or, which is reported, none that can be used.

        A row whose ids cannot be read is lost. Text is kept as it is and other values as their JSON, so ids and
        observations have to be text in all rows or in none.
        """
        key, convert = self._key(name), COLUMNS[name][1]
        if key is None:
            raise self.error(0, self._missing(name, self.keys(name), self.rows[0]))
        report = self.problems.lost if name in _IDS else self.problems.fault
        is_text = convert in (identifier, text_or_json) and any(isinstance(row.get(key), str) for row in self.rows)
        values = [None] * len(self.rows)
        for at, (line, row) in enumerate(zip(self.numbers, self.rows, strict=True)):
            value = row.get(key)
            if value is None:
                if name != "next_observation" or key not in row:  # there is none after the last step
                    report(line, self._missing(name, (key,), row), kind=f"no {name}")
                continue
            try:
                converted = convert(value)
                if is_text and not isinstance(value, str):
                    raise TypeError(f"expected text, as in other rows, got {value!r}")
                values[at] = converted
            except (ValueError, TypeError, OverflowError) as error:
                report(line, f"key {key!r} ({name}): {error}", kind=f"key {key!r}")
        return values

    def _key(self, name: str) -> str | None:
        """The one of a column's keys that occurs, None where no row has any."""
        present = [key for key in self.keys(name) if any(key in row for row in self.rows)]
        if len(present) > 1:
            raise StorageError(f"both {' and '.join(present)} occur; say which one counts", self.problems.file)
        return present[0] if present else None

    def _missing(self, name: str, keys: Sequence[str], row: Mapping[str, Any]) -> str:
        wanted = " or ".join(map(repr, keys)) or "no key"
        there = f"{wanted} is missing or null; there are {', '.join(row)}"
        return f"no {name}: {there}. Name another key ({name}=KEY){_REMEDIES.get(name, '')}"


def _identified(dump: _Dump) -> tuple[_Dump, list[tuple[int, str, str, int]]]:
    """The rows that have ids and are no copies; update, group, trajectory and step of each."""
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
    return dump.taken(kept), [ids[at] for at in kept]


def _check_updates(dump: _Dump, update_N: Sequence[int | None]) -> None:
    """verl names a file after its update; another number inside means that another value took the key's place."""
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
    """(prompt uuid, session, index) of each row where verl's trainer V1 wrote them, else nothing."""
    matches = [_match(_COMPOUND, row) for row in dump.rows]
    parts = [(match[1], match[2], match[3]) for match in matches if match is not None]
    if parts and len(parts) < len(matches):
        odd = matches.index(None)
        raise dump.error(
            odd,
            f"uid {dump.rows[odd].get('uid')!r} is not of the form <uuid>_<session>_<index> as others are: read the "
            "dumps of different trainers one by one",
        )
    return parts


def _without_copies(dump: _Dump, ids: Sequence[tuple[Any, ...]]) -> list[int]:
    """The rows that have ids and repeat no earlier one; the same step with other content is a fault."""
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
    """Refuse trainer V1's validation dumps with extra info, which repeat the last step's values in all steps."""
    if "reward" not in dump.rows[0] or _match(_COMPOUND, dump.rows[0]) is None:
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
