from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.config import Config, ConfigError
from hgpo.config import checks as engines
from hgpo.integrations.verl.config import leaves, mapped_settings
from hgpo.integrations.verl.verl_owned_settings import OWNERS, owner_of, reject_owned

ENGINE = "the engine itself"


def config() -> Config:
    policy = {"model": "m", "lora": {"rank": 4}}
    training = {"recompute_log_probs": True}
    return Config.model_validate({"run": {"engine": "verl"}, "policy": policy, "training": training})


def mapped() -> list[str]:
    return [name for name, _ in leaves(mapped_settings(config(), "m", Path("/runs/one")))]


def test_whatever_a_recipe_settles_has_a_setting_to_name() -> None:
    assert [name for name in mapped() if owner_of(name) is None] == []


def test_what_is_named_is_a_setting_that_verl_is_told() -> None:
    known = {name for name, _, _ in engines.leaves(config())}
    assert [setting for setting in OWNERS.values() if setting not in known | {ENGINE}] == []
    names = [f"{name}." for name in mapped()]
    assert [name for name in OWNERS if not any(told.startswith(f"{name}.") for told in names)] == []


def test_a_refusal_names_what_to_set_instead() -> None:
    with pytest.raises(ConfigError, match=r"is settled by the recipe's rollout\.group_size: set that instead"):
        reject_owned("actor_rollout_ref.rollout.n", mapped(), recomputes_log_probs=True)
    with pytest.raises(ConfigError, match=r"settled by the recipe's evaluation\.temperature"):
        reject_owned("actor_rollout_ref.rollout.val_kwargs", mapped(), recomputes_log_probs=True)
    reject_owned("actor_rollout_ref.rollout.gpu_memory_utilization", mapped(), recomputes_log_probs=True)
