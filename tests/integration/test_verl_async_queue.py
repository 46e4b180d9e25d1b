"""Groups of asynchronous trainers in a real TransferQueue: they enter an update whole, and survive the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hgpo.config import Config

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import torch
import transfer_queue
from tensordict import TensorDict
from verl.utils import tensordict_utils

from hgpo.integrations.verl.agent_loop import TaskRow
from hgpo.integrations.verl.launch import compose
from hgpo.integrations.verl.queue import TRAINING, group_of, groups_in_queue
from hgpo.integrations.verl.trainer import HgpoTrainer
from hgpo.integrations.verl.trainers import ColocateAsyncTrainer
from verl_workers import open_queue, small_ray_and_queue

pytestmark = pytest.mark.slow

TASKS, MEMBERS = 2, 3


@pytest.fixture(autouse=True)
def queue() -> Iterator[None]:
    with small_ray_and_queue():
        yield


class Players:
    """Stands for the agent workers; keeps the tasks that they were given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def generate_sequences(self, batch: TensorDict) -> None:
        self.given += [str(name) for name in batch["task_id"]]


def make(path: Path, update: int = 1) -> Any:
    trainer: Any = object.__new__(ColocateAsyncTrainer)
    trainer.recipe = Config.model_validate(
        {
            "policy": {"model": "m"},
            "environment": {"options": {"size": "small"}},
            "run": {"engine": "verl", "directory": str(path)},
            "rollout": {"tasks_per_update": TASKS, "group_size": MEMBERS},
            "verl": {"mode": "colocate_async"},
        }
    )
    trainer.config = compose(trainer.recipe)
    trainer.global_steps, trainer.total_training_steps, trainer.tasks_drawn = update, 10, 0
    trainer.agent_loop_manager = Players()
    trainer.replay_buffer = trainer._build_replay_buffer()
    return trainer


def submit(trainer: Any, names: Sequence[str]) -> list[str]:
    """Draw tasks as the trainer does; their keys."""
    batch = trainer._as_batch([TaskRow(name, name, "kind", "train", 0, 1) for name in names])
    trainer._submit_batch_to_rollout(batch)
    return [str(uid) for uid in batch["uid"]]


def play(uid: str, members: Sequence[int], version: int) -> None:
    """Steps of members of a group, as the agent workers store them."""
    keys = [f"{uid}_{member}_0" for member in members]
    fields = tensordict_utils.get_tensordict({"response_mask": torch.ones(len(keys), 1)})
    tags = [{"status": "success", "min_global_steps": version, "max_global_steps": version} for _ in keys]
    transfer_queue.kv_batch_put(keys=keys, partition_id=TRAINING, fields=fields, tags=tags)


def end(uid: str) -> None:
    transfer_queue.kv_batch_put(keys=[uid], partition_id=TRAINING, tags=[{"status": "finished"}])


def test_a_group_enters_an_update_whole_and_an_old_one_is_waited_for(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    limit = trainer.config.trainer.v1.sampler.max_off_policy_threshold
    [slow] = submit(trainer, ["slow"])
    play(slow, range(MEMBERS - 1), version=0)  # its last member is still played
    trainer.global_steps = limit
    complete = submit(trainer, ["a", "b", "c"])
    for uid in complete:
        play(uid, range(MEMBERS), version=limit - 1)
        end(uid)

    def finish() -> None:
        play(slow, [MEMBERS - 1], version=limit - 1)
        end(slow)

    late = threading.Timer(2.0, finish)
    late.start()
    batch, _ = trainer.replay_buffer.sample(global_steps=limit, partition_id=TRAINING, batch_size=TASKS)
    late.join()
    members: dict[str, int] = {}
    for key in batch.keys:
        members[group_of(key)] = members.get(group_of(key), 0) + 1
    assert members == {slow: MEMBERS, **{uid: MEMBERS for uid in members if uid in complete}}
    assert len(members) == TASKS
    assert trainer.agent_loop_manager.given == ["slow", "a", "b", "c"]  # none was dropped for another
    assert groups_in_queue() == 2


def test_a_checkpoint_keeps_complete_groups_and_plays_others_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path)
    trained, whole, partly, waiting = submit(trainer, ["trained", "whole", "partly", "waiting"])
    for uid in (trained, whole):
        play(uid, range(MEMBERS), version=0)
        end(uid)
    play(partly, [0], version=0)
    transfer_queue.kv_batch_put(keys=[partly], partition_id=TRAINING, tags=[{"status": "running"}])
    transfer_queue.kv_clear(keys=[trained], partition_id=TRAINING)  # as verl does when an update takes a group
    transfer_queue.save_checkpoint(tmp_path / "queue")
    transfer_queue.close()
    open_queue()

    def load_as_verl(self: HgpoTrainer) -> None:
        self.global_steps = 1
        transfer_queue.load_checkpoint(tmp_path / "queue")

    monkeypatch.setattr(HgpoTrainer, "_load_checkpoint", load_as_verl)
    resumed = make(tmp_path)
    resumed._load_checkpoint()
    resumed.global_steps = 2
    assert resumed._reissue_inflight_prompts() == 2
    assert sorted(resumed.agent_loop_manager.given) == ["partly", "waiting"]
    rows = {key for key, tag in transfer_queue.kv_list(TRAINING)[TRAINING].items() if not tag.get("is_prompt")}
    assert rows == {f"{whole}_{member}_0" for member in range(MEMBERS)}
    assert groups_in_queue() == 3
    for uid in (partly, waiting):
        play(uid, range(MEMBERS), version=1)
        end(uid)
    batch, _ = resumed.replay_buffer.sample(global_steps=2, partition_id=TRAINING, batch_size=TASKS)
    assert whole in {group_of(key) for key in batch.keys}  # the oldest first
