"""What the suites of this package share: splits made once when asked for, tasks made by number."""

from __future__ import annotations

import pytest

from hgpo.envs.base import Env, MadeOnAccess, Task, TaskSplits


def no_environment() -> Env:
    raise AssertionError("no test here plays")


class Numbered(MadeOnAccess[Task]):
    """Remembers what was asked for."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.asked: list[int] = []

    def _element(self, number: int) -> Task:
        self.asked.append(number)
        return Task(f"train/{number}", "kind", no_environment)


def test_a_task_is_made_when_it_is_asked_for() -> None:
    tasks = Numbered(10**9)
    assert len(tasks) == 10**9
    assert (tasks[3].id, tasks[-1].id) == ("train/3", "train/999999999")
    assert [task.id for task in tasks[5:9:2]] == ["train/5", "train/7"]
    assert tasks.asked == [3, 10**9 - 1, 5, 7]


def test_tasks_end_where_a_list_ends() -> None:
    tasks = Numbered(2)
    assert [task.id for task in tasks] == ["train/0", "train/1"]
    assert tasks[2:] == []
    with pytest.raises(IndexError):
        tasks[2]
    with pytest.raises(IndexError):
        tasks[-3]


def test_a_split_is_made_once_and_others_not_at_all() -> None:
    made: list[str] = []

    def make(split: str) -> Numbered:
        made.append(split)
        return Numbered(1)

    suite = TaskSplits({"train": lambda: make("train"), "valid": lambda: make("valid")})
    assert suite.splits == ("train", "valid")
    assert suite.tasks("train") is suite.tasks("train")
    assert made == ["train"]


def test_an_unknown_split_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown split 'test'; this suite has train"):
        TaskSplits({"train": lambda: Numbered(1)}).tasks("test")
