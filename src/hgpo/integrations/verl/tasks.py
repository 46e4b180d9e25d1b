"""Which episodes are played next, as rows for verl's agent workers. Explicit ids travel with every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hgpo.envs.base import Task
from hgpo.runs.task_order import task_indices

_SEED_STREAM = 2  # keeps environment seeds apart from the other generators of a run


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task to be played `n` times from the same start.

    Example: `TaskRow(group="3/17/train/17", task_id="train/17", task_type="pick_two_obj_and_place", split="train",
    task_index=17, seed=812)`.
    """

    group: str
    task_id: str
    task_type: str
    split: str
    task_index: int
    seed: int


def training_rows(
    tasks: Sequence[Task], split: str, *, seed: int, update: int, start: int, count: int
) -> list[TaskRow]:
    """Draws `start` to `start + count` of the order that `seed` fixes; the draw's number makes the group unique.

    A pure function of its arguments, so a resumed run needs to remember only how many draws were made.
    """
    rows = []
    for draw, index in enumerate(task_indices(seed, len(tasks), start, count), start=start):
        task = tasks[index]
        rows.append(
            TaskRow(f"{update}/{draw}/{task.id}", task.id, task.kind, split, index, _environment_seed(seed, draw))
        )
    return rows


def panel_rows(tasks: Sequence[Task], split: str, *, seed: int) -> list[TaskRow]:
    """Every task of a panel exactly once, for one evaluation seed."""
    return [
        TaskRow(f"s{seed}/{index}/{task.id}", task.id, task.kind, split, index, _environment_seed(seed, index))
        for index, task in enumerate(tasks)
    ]


def as_columns(rows: Sequence[TaskRow]) -> dict[str, list[Any]]:
    """Column by column, as verl takes batches; `index` is the name under which verl traces a sample."""
    columns = {name: [asdict(row)[name] for row in rows] for name in asdict(rows[0])}
    return {**columns, "index": columns["task_index"]}


def _environment_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, _SEED_STREAM, number]).generate_state(1)[0] >> 1)
