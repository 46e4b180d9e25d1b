from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="verl is missing: make verl-test")


from corridor import CorridorSuite
from hgpo.integrations.verl.agent_loop import as_columns, panel_rows, training_rows
from hgpo.rollout.sampling import task_indices


def test_the_order_is_the_built_in_trainers_and_ids_are_unique() -> None:
    tasks = CorridorSuite(longest=11).tasks("train")
    rows = training_rows(tasks, "train", seed=4, update=2, start=4, count=9)
    assert [row.task_index for row in rows] == task_indices(4, len(tasks), 4, 9)
    assert [row.task_id for row in rows] == [tasks[row.task_index].id for row in rows]
    assert len({row.group for row in rows}) == 9  # though there are six tasks alone
    assert len({row.seed for row in rows}) == 9
    assert all(row.group.startswith("2/") for row in rows)


def test_a_resumed_run_draws_what_the_first_would_have_drawn() -> None:
    tasks = CorridorSuite(longest=11).tasks("train")
    whole = training_rows(tasks, "train", seed=0, update=1, start=0, count=8)
    later = training_rows(tasks, "train", seed=0, update=1, start=5, count=3)
    assert whole[5:] == later


def test_a_panel_holds_every_task_once_whatever_the_seed() -> None:
    tasks = CorridorSuite(longest=11).tasks("held_out")
    first, second = (panel_rows(tasks, "held_out", seed=seed) for seed in (123, 456))
    assert [row.task_id for row in first] == [task.id for task in tasks] == [row.task_id for row in second]
    assert {row.seed for row in first}.isdisjoint(row.seed for row in second)
    assert {row.group for row in first}.isdisjoint(row.group for row in second)


def test_columns_keep_rows_together() -> None:
    rows = panel_rows(CorridorSuite().tasks("train"), "train", seed=1)
    columns = as_columns(rows)
    assert columns["group"] == [row.group for row in rows]
    assert columns["index"] == columns["task_index"] == [0, 1, 2]
