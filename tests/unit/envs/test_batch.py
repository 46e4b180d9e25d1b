from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import pytest

from corridor import Corridor, CorridorSuite
from hgpo.envs.alfworld import alfworld_suite
from hgpo.envs.base import Task, TaskSuite
from hgpo.envs.batch import BatchedEnv
from hgpo.envs.limit import LimitedSuite

FEW_GAMES = {"train": 6, "valid_seen": 0, "valid_unseen": 0}


def walkthroughs(suite: TaskSuite) -> list[tuple[str, ...]]:
    return [task.make().game.walkthrough for task in suite.tasks("train")]  # type: ignore[attr-defined]


@pytest.fixture
def batch(corridor_suite: CorridorSuite) -> BatchedEnv:
    """Corridors of length 1, 3 and 5."""
    batch = BatchedEnv()
    batch.reset(corridor_suite.tasks("train"))
    return batch


def test_reset_starts_every_slot(corridor_suite: CorridorSuite) -> None:
    batch = BatchedEnv()
    starts = batch.reset(corridor_suite.tasks("train"))
    assert [starts[slot][1]["task"] for slot in (0, 1, 2)] == [f"open the door at place {goal}" for goal in (1, 3, 5)]
    assert batch.live == (0, 1, 2)
    assert [task.id for task in batch.tasks] == ["train/1", "train/3", "train/5"]


def test_each_slot_carries_out_its_own_command(batch: BatchedEnv) -> None:
    results = batch.step({2: "go right", 0: "go left"})
    assert {slot: result[0] for slot, result in results.items()} == {2: "you are at place 1", 0: "you are at place -1"}
    assert batch.step({1: "look"})[1][0] == "you are at place 0"


def test_a_slot_that_has_ended_takes_no_more_commands(batch: BatchedEnv) -> None:
    batch.step({0: "go right"})
    assert batch.step({0: "open door", 1: "go right"})[0][1:4] == (1.0, True, False)
    assert batch.live == (1, 2)
    with pytest.raises(ValueError, match=r"slots \[0, 9\] are not live; live are \[1, 2\]"):
        batch.step({1: "go right", 0: "go right", 9: "go right"})
    assert batch.step({1: "look"})[1][0] == "you are at place 1"  # nothing was carried out with the wrong slots


def test_truncation_ends_a_slot_too(corridor_suite: CorridorSuite) -> None:
    batch = BatchedEnv()
    batch.reset(LimitedSuite(corridor_suite, max_steps=2).tasks("train")[:2])
    batch.step({0: "go left", 1: "go left"})
    assert batch.step({0: "go left"})[0][2:4] == (False, True)
    assert batch.live == (1,)


def test_reset_plays_the_same_tasks_again_or_others(batch: BatchedEnv, corridor_suite: CorridorSuite) -> None:
    batch.step({0: "go right"})
    batch.step({0: "open door"})
    assert batch.reset()[0][0] == "you are at place 0"
    assert batch.live == (0, 1, 2)
    batch.reset(corridor_suite.tasks("held_out")[:1])
    assert [task.id for task in batch.tasks] == ["held_out/2"]


class Seeded(Corridor):
    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        super().reset()
        return f"seed {seed}", {}


def test_seeds_for_all_or_for_each() -> None:
    tasks = [Task(str(number), "seeded", partial(Seeded, 1)) for number in range(3)]
    batch = BatchedEnv()
    assert [start[0] for start in batch.reset(tasks, seeds=[5, 6, 5]).values()] == ["seed 5", "seed 6", "seed 5"]
    assert [start[0] for start in batch.reset(seeds=4).values()] == ["seed 4"] * 3
    assert [start[0] for start in batch.reset().values()] == ["seed None"] * 3
    with pytest.raises(ValueError, match="2 seeds for 3 tasks"):
        batch.reset(seeds=[1, 2])


class Broken(Corridor):
    def step(self, action: str) -> Any:
        raise OSError("the disk is gone")


def test_an_error_says_which_task_and_command(corridor_suite: CorridorSuite) -> None:
    batch = BatchedEnv()
    batch.reset([corridor_suite.tasks("train")[0], Task("mine/7", "broken", partial(Broken, 1))])
    with pytest.raises(OSError, match="the disk is gone") as caught:
        batch.step({0: "look", 1: "go right"})
    assert caught.value.__notes__ == ["while carrying out 'go right' for task 'mine/7' in slot 1"]


def test_it_needs_tasks() -> None:
    with pytest.raises(ValueError, match="no tasks to play"):
        BatchedEnv().reset()


def test_many_household_games_are_played_together_as_one_by_one() -> None:
    suite = alfworld_suite(games=FEW_GAMES)
    plans = walkthroughs(suite)
    batch = BatchedEnv()
    starts = batch.reset(suite.tasks("train"))
    texts = {slot: [start[0]] for slot, start in starts.items()}
    while batch.live:
        results = batch.step({slot: plans[slot][len(texts[slot]) - 1] for slot in batch.live})
        for slot, result in results.items():
            texts[slot].append(result[0])
    for slot, task in enumerate(suite.tasks("train")):
        env = task.make()
        assert texts[slot] == [env.reset()[0], *(env.step(command)[0] for command in plans[slot])]


def test_a_live_game_takes_little_memory() -> None:
    tasks = alfworld_suite(size="full", games={**FEW_GAMES, "train": 48}).tasks("train")
    batch = BatchedEnv()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    starts = batch.reset([task for task in tasks for _ in range(2)])
    batch.step({slot: start[1]["admissible_commands"][-1] for slot, start in starts.items()})
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / len(starts) < 1e6


def test_it_is_pickled_in_the_middle_of_its_games() -> None:
    suite = alfworld_suite(games=FEW_GAMES)
    plans = walkthroughs(suite)
    batch = BatchedEnv()
    batch.reset(suite.tasks("train"))
    batch.step({slot: plan[0] for slot, plan in enumerate(plans)})
    batch.step({slot: plan[1] for slot, plan in enumerate(plans)})
    copy = pickle.loads(pickle.dumps(batch))  # noqa: S301
    assert copy.live == batch.live
    third = {slot: plans[slot][2] for slot in batch.live}
    assert copy.step(third) == batch.step(third)


def test_a_process_started_afresh_can_hold_it() -> None:
    suite = alfworld_suite(games=FEW_GAMES)
    tasks, plans = list(suite.tasks("train")), walkthroughs(suite)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, BatchedEnv(), tasks))
    process.start()
    batch = BatchedEnv()
    try:
        assert here.recv() == batch.reset(tasks)
        for turn in range(max(map(len, plans))):
            commands = {slot: plans[slot][turn] for slot in batch.live}
            here.send(commands)
            assert here.recv() == batch.step(commands)
        here.send({})
    finally:
        process.join(timeout=30)
        process.terminate()
    assert process.exitcode == 0
    assert batch.live == ()


def serve(connection: Connection, batch: BatchedEnv, tasks: list[Task]) -> None:
    connection.send(batch.reset(tasks))
    while commands := connection.recv():
        connection.send(batch.step(commands))
