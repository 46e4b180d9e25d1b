"""`verl.mode`: its settings in verl's words, and what contradicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgpo.config import Config, ConfigError
from hgpo.config import loading as checks
from hgpo.integrations.verl.config import Mapped, mapped_settings
from hgpo.integrations.verl.mode import check_mode, mode_settings, suggested_for_mode

MODES = ["sync", "colocate_async", "separate_async"]


def config(mode: str, **sections: Any) -> Config:
    tree = {"policy": {"model": "some/model"}, "environment": {"options": {"size": "small"}}, **sections}
    tree["verl"] = {"mode": mode, **sections.get("verl", {})}
    return Config.model_validate({**tree, "run": {"engine": "verl"}})


def check(settings: Config) -> None:
    check_mode(settings.policy, settings.training, settings.verl)


def decided(settings: Config) -> dict[str, Mapped]:
    return mode_settings(settings.verl, settings.policy, settings.rollout.tasks_per_update)


def mapped(settings: Config) -> dict[str, Any]:
    return {name: one.value for name, one in decided(settings).items()}


def suggested(settings: Config) -> dict[str, Any]:
    return suggested_for_mode(settings.verl, settings.policy)


@pytest.mark.parametrize("mode", MODES)
def test_every_setting_of_a_mode_is_decided_by_one_of_the_recipes(mode: str) -> None:
    settings = config(mode, policy={"model": "some/model", "device": "cpu"})
    check(settings)
    known = {name for name, _, _ in checks.leaves(settings)}
    owners = {name: one.owner for name, one in decided(settings).items()}
    assert owners["trainer.v1.trainer_mode"] == "verl.mode"
    assert {owner for owner in owners.values() if owner} <= known


def test_separate_gpus_sample_for_whole_updates() -> None:
    settings = config("separate_async", verl={"rollout_gpus": 3}, rollout={"tasks_per_update": 6})
    found = {**mapped(settings), **suggested(settings)}
    assert found["actor_rollout_ref.rollout.nnodes"] * found["actor_rollout_ref.rollout.n_gpus_per_node"] == 3
    assert found["actor_rollout_ref.rollout.checkpoint_engine.backend"] == "nccl"
    parts = found["trainer.v1.separate_async.parameter_sync_step"]
    assert parts * found["actor_rollout_ref.actor.ppo_mini_batch_size"] == 6  # verl asserts it
    assert mapped(config("sync")).keys() == mapped(config("colocate_async")).keys() == {"trainer.v1.trainer_mode"}


@pytest.mark.parametrize("mode", MODES[1:])
def test_old_policies_are_corrected_with_the_trainers_log_probs_and_tasks_are_not_dropped(mode: str) -> None:
    settings = config(mode, policy={"model": "some/model", "device": "cpu"})
    assert settings.recomputes_log_probs
    found = {name: one.value for name, one in mapped_settings(settings, "m", Path("/runs/one")).items()}
    assert found["algorithm.rollout_correction.bypass_mode"] is False
    assert found["algorithm.rollout_correction.rollout_is"] == "token"
    assert found["algorithm.rollout_correction.rollout_is_threshold"] == settings.training.importance_cap
    assert suggested(settings)["trainer.v1.sampler.max_off_policy_strategy"] == "wait"


@pytest.mark.parametrize("mode", MODES[1:])
def test_an_update_without_correction_is_rejected(mode: str) -> None:
    with pytest.raises(ConfigError, match=r"training\.recompute_log_probs = false: .* leave it at auto"):
        check(config(mode, training={"recompute_log_probs": False}))
    with pytest.raises(ConfigError, match=r"training\.importance_cap = none: .* set one"):
        check(config(mode, training={"importance_cap": "none"}))
    own = {"algorithm": {"rollout_correction": {"rollout_is": "sequence"}}}
    check(config(mode, training={"importance_cap": "none"}, verl={"overrides": own}))
    check(config("sync", training={"importance_cap": "none", "recompute_log_probs": False}))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"policy": {"model": "m", "lora": {"rank": 4}}}, r"policy\.lora\.rank = 4: .* verl\.mode = colocate_async"),
        ({"policy": {"model": "m", "device": "cpu"}, "verl": {"rollout": "vllm-cpu"}}, r"leave verl\.rollout out"),
        (
            {"verl": {"rollout_gpus": 3, "tensor_parallel": 2, "gpus_per_node": 2}},
            r"does not divide verl\.rollout_gpus = 3",
        ),
        (
            {"verl": {"rollout_gpus": 4, "tensor_parallel": 4, "gpus_per_node": 2, "nodes": 2}},
            r"tensor_parallel = 4 exceeds verl\.gpus_per_node = 2",
        ),
    ],
)
def test_what_separate_gpus_cannot_do_is_rejected(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config("separate_async", **sections))


@pytest.mark.parametrize("mode", MODES[:2])
def test_gpus_that_only_sample_are_rejected_where_there_are_none(mode: str) -> None:
    check(config(mode, policy={"model": "m", "lora": {"rank": 4}}))
    with pytest.raises(ConfigError, match=r"verl\.rollout_gpus = 2: only verl\.mode = 'separate_async' has"):
        check(config(mode, verl={"rollout_gpus": 2}))
