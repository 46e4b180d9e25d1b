from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.config import Config, ConfigError
from hgpo.config import loading as engines
from hgpo.integrations.verl.config import leaves, mapped_settings
from hgpo.integrations.verl.verl_owned_settings import OWNERS, owner_of, reject_owned

FIXED = {
    "data.custom_cls.name",
    "data.custom_cls.path",
    "data.dataloader_num_workers",
    "data.shuffle",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.actor.shuffle",
    "actor_rollout_ref.actor.calculate_entropy",
    "actor_rollout_ref.actor.kl_loss_type",
    "actor_rollout_ref.actor.checkpoint.save_contents",
    "actor_rollout_ref.ref.strategy",
    "actor_rollout_ref.rollout.mode",
    "actor_rollout_ref.rollout.top_k",
    "actor_rollout_ref.rollout.top_p",
    "actor_rollout_ref.rollout.calculate_log_probs",
    "actor_rollout_ref.rollout.agent.default_agent_loop",
    "trainer.use_v1",
    "trainer.v1.trainer_mode",
    "trainer.val_before_train",
    "trainer.resume_mode",
    "trainer.project_name",
}


def config() -> Config:
    policy = {"model": "m", "lora": {"rank": 4}}
    training = {"recompute_log_probs": True}
    return Config.model_validate({"run": {"engine": "verl"}, "policy": policy, "training": training})


def mapped() -> list[str]:
    return [name for name, _ in leaves(mapped_settings(config(), "m", Path("/runs/one")))]


def test_every_setting_of_verl_without_a_fixed_value_has_an_owner() -> None:
    assert {name for name in mapped() if owner_of(name) is None} == FIXED


def test_owners_are_settings_of_a_recipe_and_owned_names_are_mapped() -> None:
    known = {name for name, _, _ in engines.leaves(config())}
    assert [setting for setting in OWNERS.values() if setting not in known] == []
    names = [f"{name}." for name in mapped()]
    assert [name for name in OWNERS if not any(one.startswith(f"{name}.") for one in names)] == []


def test_a_rejection_names_what_to_set_instead() -> None:
    with pytest.raises(ConfigError, match=r"is settled by the recipe's rollout\.group_size: set that instead"):
        reject_owned("actor_rollout_ref.rollout.n", mapped(), recomputes_log_probs=True)
    with pytest.raises(ConfigError, match=r"settled by the recipe's evaluation\.temperature"):
        reject_owned("actor_rollout_ref.rollout.val_kwargs", mapped(), recomputes_log_probs=True)
    reject_owned("actor_rollout_ref.rollout.gpu_memory_utilization", mapped(), recomputes_log_probs=True)


def test_a_fixed_setting_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"verl\.overrides\.data\.shuffle cannot be changed"):
        reject_owned("data.shuffle", mapped(), recomputes_log_probs=True)
