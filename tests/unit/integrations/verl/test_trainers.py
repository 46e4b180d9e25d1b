"""What differs between the trainers of `verl.mode`: the age of what they train on, and which tasks they draw."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import PPOTrainer, get_trainer_cls

from hgpo.config import Config
from hgpo.integrations.verl import trainers as module
from hgpo.integrations.verl.mode import trainer_name
from hgpo.integrations.verl.queue import staleness
from hgpo.integrations.verl.trainer import HgpoTrainer
from hgpo.integrations.verl.trainers import ColocateAsyncTrainer

SHARED = ("_balance_batch", "_compute_advantage", "_update_actor", "_evaluate", "_save_checkpoint", "step")


def batch(versions: dict[str, tuple[int, int]]) -> Any:
    """Rows by key, each with the oldest and the newest version that sampled it, and one of padding."""
    tags = [{"min_global_steps": oldest, "max_global_steps": newest} for oldest, newest in versions.values()]
    return SimpleNamespace(keys=[*versions, "pad_0_0"], tags=[*tags, {"is_padding": True}])


def test_the_age_of_tokens_is_counted_in_versions_by_step_and_within_groups() -> None:
    found = staleness(batch({"a_0_0": (2, 2), "a_0_1": (3, 3), "a_1_0": (1, 3), "b_0_0": (4, 4)}), update=5)
    assert found == {
        "staleness_min": 0,  # b's
        "staleness_mean": (2 + 1 + 3 + 0) / 4,  # a step counts by its oldest token
        "staleness_max": 3,
        "staleness_spread_mean": (2 + 0) / 2,  # a's tokens are of versions 1 to 3
        "staleness_spread_max": 2,
    }


def test_a_synchronous_batch_has_the_age_0_and_an_empty_one_none() -> None:
    assert set(staleness(batch({"a_0_0": (6, 6), "b_1_0": (6, 6)}), update=7).values()) == {0}
    assert staleness(batch({}), update=7) == {}


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_every_mode_is_one_of_verls_with_the_same_parts(mode: str) -> None:
    trainer = get_trainer_cls(trainer_name(mode))
    assert any(base is get_trainer_cls(mode) for base in trainer.__mro__)
    for name in SHARED:
        assert getattr(trainer, name) is getattr(HgpoTrainer, name)


@pytest.mark.parametrize(
    ("update", "queued", "drawn"),
    [
        (1, 4, 4),  # one batch was begun before the first update
        (8, 8, 0),  # as after a group that was played again
        (9, 4, 4),
        (9, 6, 2),
        (10, 4, 0),  # the last update takes what is there
        (10, 0, 4),
    ],
)
def test_no_task_is_drawn_that_no_update_takes(
    monkeypatch: pytest.MonkeyPatch, update: int, queued: int, drawn: int
) -> None:
    trainer, asked = drawing(monkeypatch, update, queued)
    trainer.total_training_steps = 10 if update > 8 else 9
    trainer._add_batch_to_generate()
    assert sum(asked) == drawn


@pytest.mark.parametrize(("update", "drawn"), [(1, 12), (8, 8), (10, 0)])
def test_a_start_or_resumption_draws_no_task_that_no_update_takes(
    monkeypatch: pytest.MonkeyPatch, update: int, drawn: int
) -> None:
    """verl begins three batches here; a complete run is resumed before update 10 of 9."""
    trainer, asked = drawing(monkeypatch, update, queued=0)
    trainer.total_training_steps = 9
    trainer.on_train_begin()
    assert sum(asked) == drawn


def drawing(monkeypatch: pytest.MonkeyPatch, update: int, queued: int) -> tuple[Any, list[int]]:
    """A trainer before an update with `queued` groups in the queue, and the numbers of tasks that verl is to draw."""
    tree = {"policy": {"model": "m"}, "rollout": {"tasks_per_update": 4}, "verl": {"mode": "colocate_async"}}
    trainer: Any = object.__new__(ColocateAsyncTrainer)
    trainer.recipe = Config.model_validate(tree)
    trainer.config = OmegaConf.create(
        {
            "data": {"train_batch_size": 4, "gen_batch_size": 1},
            "skip": {"rollout_tq": {"enable": False}},
            "trainer": {"v1": {"colocate_async": {"num_warmup_batches": 3}}},
        }
    )
    trainer.global_steps, trainer._restored_tq_prompt_count = update, queued
    monkeypatch.setattr(module, "groups_in_queue", lambda: queued)
    asked: list[int] = []
    monkeypatch.setattr(PPOTrainer, "_add_prompts_to_generate", lambda self, count: asked.append(count) or count)
    return trainer, asked
