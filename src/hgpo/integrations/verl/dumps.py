"""The JSONL files that verl writes to `trainer.rollout_data_dir` and `trainer.validation_data_dir`, as a rollout table.

One file per update, `<update>.jsonl`, one row per model response. Read from the sources of verl 0.9.1 and verl-agent:

- Every row has `input`, `output`, `score` (sum of the response's token rewards), `step` (the trainer's global step: an
  *update* here) and, in verl, `gts` (ground truth).
- Trainer V1 (verl's default) adds `uid` = `<prompt uuid>_<session>_<index>`: group, trajectory and step in one key.
  Rows that only fill up the batch have a uid that begins with `pad`; they are left out. `score` is the last response's
  in all rows of a trajectory. Nothing else is written in training. In validation, `reward` (= `score`) and the keys of
  `reward_extra_info` follow, but those of the *last* response, in all rows of its trajectory.
- Trainer V0 and verl-agent add the keys of `reward_extra_info`, row by row, and no id unless it is among them. Values
  that JSON does not know are written as text ("1.0", "True"), large arrays with their middle left out: let observations
  be text. verl-agent repeats random rows to fill up the batch; a row equal to an earlier one in everything is left out.

What a step needs and the dump does not have is an error that says which key is missing and how verl comes to write it.

Shapes: N rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hgpo.integrations.verl import dump_rows
from hgpo.integrations.verl.dump_rows import Keys, Row, present_key, read_column
from hgpo.storage.tables import StorageError


@dataclass(frozen=True, slots=True)
class DumpColumns:
    """Which key of a dump holds which column: one of the given keys, whichever occurs.

    Attributes:
        update: the trainer's global step. group: the task that trajectories are compared within; trainer V1's compound
            uid is taken apart. trajectory, step: needed unless the uid is compound.
        observation: what the environment said, without memory or template: text, or any JSON value, which is kept as
            JSON text. reward: the environment's reward of this step.
        final_reward: in place of `reward`: the whole trajectory's, given to its last step. Only on request.
        prompt, response: needed. score, action, penalty, valid, success, next_observation: read where they occur.

    Example: `DumpColumns.with_keys({"observation": "room", "final_reward": "score"})` reads the observation from the
    key `room`, and gives each trajectory's score to its last step.
    """

    update: Keys = ("step",)
    group: Keys = ("uid",)
    trajectory: Keys = ("traj_uid",)
    step: Keys = ("step_index",)
    observation: Keys = ("anchor_obs",)
    reward: Keys = ("step_reward", "rewards")
    final_reward: Keys = ()
    prompt: Keys = ("input",)
    response: Keys = ("output",)
    score: Keys = ("score",)
    action: Keys = ("action",)
    penalty: Keys = ("penalty",)
    valid: Keys = ("is_action_valid",)
    success: Keys = ("success", "won")
    next_observation: Keys = ("next_observation",)

    @classmethod
    def with_keys(cls, keys: Mapping[str, str]) -> DumpColumns:
        """The defaults with some columns read from other keys, which then have to occur.

        Raises:
            ValueError: there is no such column (the message lists the columns), or both rewards are given.
        """
        names = [column.name for column in fields(cls)]
        if unknown := [name for name in keys if name not in names]:
            raise ValueError(f"no column {', '.join(unknown)} can be read from a dump; columns: {', '.join(names)}")
        if "reward" in keys and "final_reward" in keys:
            raise ValueError("give either reward, of each step, or final_reward, of the whole trajectory, not both")
        return replace(cls(), **{name: (key,) for name, key in keys.items()})

    def is_chosen(self, name: str) -> bool:
        """Whether the column's keys are others than the default ones."""
        return bool(getattr(self, name) != getattr(DumpColumns(), name))


_OPTIONAL = {
    "score": (dump_rows.number, pa.float64()),
    "action": (dump_rows.text, pa.large_string()),
    "penalty": (dump_rows.number, pa.float64()),
    "valid": (dump_rows.truth, pa.bool_()),
    "success": (dump_rows.truth, pa.bool_()),
    "next_observation": (dump_rows.text_or_json, pa.large_string()),
}
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


def read_dumps(path: Path, columns: DumpColumns | None = None) -> pa.Table:
    """Read one dump or a folder of them.

    Group and trajectory ids become `u<update>/<group>` and `u<update>/<group>/<trajectory>`, so that updates never mix
    and a trajectory's id need only be unique within its group.

    Args:
        path: a file, or a folder whose `*.jsonl` are read in the order of their numbers.
        columns: where to find what; the defaults are what verl and verl-agent write or call these things.

    Returns:
        update, group, trajectory, step, observation, reward, prompt, response; score, action, penalty, valid, success
        and next_observation where the dump has them; dump_file and dump_line, where the row comes from. Rows in the
        order of files and lines, without padding and repeated rows.

    Raises:
        StorageError: (a ValueError) no dump, a damaged line, a missing or unusable value; names file and line.
    """
    columns = columns or DumpColumns()
    rows = [row for file in dump_rows.dump_files(path) for row in dump_rows.read_rows(file) if not _is_padding(row)]
    if not rows:
        raise StorageError(f"{path} holds no rollout rows")
    rows, ids = _identify(rows, columns)
    group_N = [f"u{update}/{group}" for update, group, _, _ in ids]
    trajectory_N = [f"u{update}/{group}/{trajectory}" for update, group, trajectory, _ in ids]
    step_N = [step for _, _, _, step in ids]
    observation_N = _read(rows, columns, "observation", dump_rows.text_or_json)
    _check_steps_differ(rows, trajectory_N, observation_N)
    table: dict[str, pa.Array] = {
        "update": pa.array([update for update, _, _, _ in ids], pa.int64()),
        "group": pa.array(group_N, pa.large_string()),
        "trajectory": pa.array(trajectory_N, pa.large_string()),
        "step": pa.array(step_N, pa.int32()),
        "observation": pa.array(observation_N, pa.large_string()),
        "reward": pa.array(_rewards(rows, columns, trajectory_N, step_N), pa.float64()),
        "prompt": pa.array(_read(rows, columns, "prompt", dump_rows.text), pa.large_string()),
        "response": pa.array(_read(rows, columns, "response", dump_rows.text), pa.large_string()),
    }
    for name, (convert, kind) in _OPTIONAL.items():
        if _occurs(rows, columns, name):
            table[name] = pa.array(_read(rows, columns, name, convert), kind)
    table["dump_file"] = pa.array([row.file.name for row in rows], pa.large_string())
    table["dump_line"] = pa.array([row.line for row in rows], pa.int64())
    return pa.table(table)


Ids = tuple[int, str, str, int]
"""Update, group, trajectory and step of a row."""


def _identify(rows: list[Row], columns: DumpColumns) -> tuple[list[Row], list[Ids]]:
    """The rows that are not copies, and what each one is a step of."""
    update_N = _read(rows, columns, "update", dump_rows.whole)
    _check_updates(rows, update_N, columns)
    parts = _compound_uids(rows)
    found: dict[str, list[Any]] = {}
    for place, name in enumerate(("group", "trajectory", "step")):
        has_own_key = columns.is_chosen(name) or (name != "group" and _occurs(rows, columns, name))
        if parts and not has_own_key:
            found[name] = [part[place] for part in parts]
        else:
            found[name] = _read(rows, columns, name, dump_rows.whole if name == "step" else dump_rows.identifier)
    step_N = [int(step) for step in found["step"]]
    return _without_copies(rows, list(zip(update_N, found["group"], found["trajectory"], step_N, strict=True)))


def _check_updates(rows: Sequence[Row], update_N: Sequence[int], columns: DumpColumns) -> None:
    """verl names a file after its update; another number inside means that another value took the key's place."""
    for row, update in zip(rows, update_N, strict=True):
        if row.file.stem.isdecimal() and int(row.file.stem) != update and not columns.is_chosen("update"):
            raise StorageError(
                f"{row.place}: 'step' is {update}, but verl writes the number of the update there, and the file is "
                f"named {row.file.name}. If reward_extra_info has a key 'step', rename it to 'step_index'"
            )


def _compound_uids(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """(prompt uuid, session, index) of each row where verl's trainer V1 wrote them, else nothing."""
    matches = [_match(_COMPOUND, row) for row in rows]
    parts = [(match[1], match[2], match[3]) for match in matches if match is not None]
    if parts and len(parts) < len(rows):
        odd = rows[matches.index(None)]
        raise StorageError(
            f"{odd.place}: uid {odd.values.get('uid')!r} is not of the form <uuid>_<session>_<index> as others are: "
            "read the dumps of different trainers one by one"
        )
    return parts


def _without_copies(rows: list[Row], ids: list[Ids]) -> tuple[list[Row], list[Ids]]:
    """Leave out rows that repeat an earlier one; the same step with other content is an error."""
    first: dict[Ids, int] = {}
    for at, row_ids in enumerate(ids):
        earlier = first.setdefault(row_ids, at)
        if rows[earlier].values != rows[at].values:
            update, group, trajectory, step = row_ids
            raise StorageError(
                f"{rows[at].place}: update {update}, group {group}, trajectory {trajectory} already has a step {step} "
                f"in {rows[earlier].place}, with other content"
            )
    return [rows[at] for at in first.values()], list(first)


def _check_steps_differ(rows: Sequence[Row], trajectory_N: Sequence[str], observation_N: Sequence[str]) -> None:
    """Refuse trainer V1's validation dumps with extra info, which repeat the last step's values in all steps."""
    if "reward" not in rows[0].values or _match(_COMPOUND, rows[0]) is None:
        return
    seen: dict[str, set[str]] = {}
    for trajectory, observation in zip(trajectory_N, observation_N, strict=True):
        seen.setdefault(trajectory, set()).add(observation)
    if len(seen) < len(rows) and all(len(observations) == 1 for observations in seen.values()):
        raise StorageError(
            f"{rows[0].place}: all steps of each trajectory have the same observation. verl's trainer V1 writes the "
            "extra info of the last response into all rows of a validation dump, so it cannot tell steps apart; read "
            "training dumps instead"
        )


def _rewards(
    rows: Sequence[Row], columns: DumpColumns, trajectory_N: Sequence[str], step_N: Sequence[int]
) -> list[float]:
    """Reward of each step, or the final reward at the last step and 0 before."""
    if not columns.final_reward:
        return _read(rows, columns, "reward", dump_rows.number)
    final_N = _read(rows, columns, "final_reward", dump_rows.number)
    last: dict[str, int] = {}
    for at, trajectory in enumerate(trajectory_N):
        other = last.setdefault(trajectory, at)
        if final_N[other] != final_N[at]:
            raise StorageError(
                f"{rows[at].place}: {columns.final_reward[0]} of trajectory {trajectory} is {final_N[at]}, but "
                f"{final_N[other]} in {rows[other].place}; a final reward must be the same in all its steps"
            )
        if step_N[at] > step_N[other]:
            last[trajectory] = at
    ends = set(last.values())
    return [reward if at in ends else 0.0 for at, reward in enumerate(final_N)]


def _occurs(rows: Sequence[Row], columns: DumpColumns, name: str) -> bool:
    return columns.is_chosen(name) or present_key(rows, getattr(columns, name)) is not None


def _read(rows: Sequence[Row], columns: DumpColumns, name: str, convert: Any) -> list[Any]:
    nullable = name == "next_observation"  # there is none after the last step
    return read_column(rows, name, getattr(columns, name), convert, _REMEDIES.get(name, ""), nullable)


def _is_padding(row: Row) -> bool:
    return _match(_PADDING, row) is not None


def _match(pattern: re.Pattern[str], row: Row) -> re.Match[str] | None:
    uid = row.values.get("uid")
    return pattern.fullmatch(uid) if isinstance(uid, str) else None
