from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from hgpo.config import Config, ConfigError, CriticSettings, TrainingSettings
from hgpo.config import loading as checks
from hgpo.config.loading import engines_of
from hgpo.integrations.verl.config import (
    Mapped,
    check_for_verl,
    dotted_values,
    mapped_settings,
    reject_owned,
    suggested_settings,
)

RUN = Path("/runs/one")
PPO = {"advantage": {"estimator": "gae"}}


def config(**sections: Any) -> Config:
    tree = {"policy": {"model": "some/model"}, "environment": {"options": {"size": "small"}}, **sections}
    tree["run"] = {"engine": "verl", **sections.get("run", {})}
    return Config.model_validate(tree)


def of_mapped(settings: Config) -> dict[str, Any]:
    return {name: one.value for name, one in mapped_settings(settings, "some/model", RUN).items()}


def mapped(**sections: Any) -> dict[str, Any]:
    return of_mapped(config(**sections))


def suggested(settings: Config) -> dict[str, Any]:
    return suggested_settings(settings)


def test_the_published_settings_in_verls_words() -> None:
    found = mapped()
    expected = {
        "data.train_batch_size": 16,
        "data.max_prompt_length": 4096,
        "data.max_response_length": 512,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.temperature": 1.0,
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0.4,
        "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 16,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.2,
        "actor_rollout_ref.actor.clip_ratio_c": 3.0,
        "actor_rollout_ref.actor.loss_agg_mode": "token-sum",
        "actor_rollout_ref.actor.entropy_coeff": 0.001,
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.01,
        "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
        "actor_rollout_ref.actor.optim.clip_grad": 1.0,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.optim.weight_decay": 0.01,
        "algorithm.gamma": 0.95,
        "trainer.total_training_steps": 160,
        "trainer.save_freq": 40,
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("section", "name", "value", "verl_name", "verl_value"),
    [
        ("training", "kl_coefficient", 0.0, "actor_rollout_ref.actor.use_kl_loss", False),
        ("training", "dual_clip", 5.0, "actor_rollout_ref.actor.clip_ratio_c", 5.0),
        ("training", "dual_clip", None, "actor_rollout_ref.actor.clip_ratio_c", 1e9),
        ("training", "recompute_log_probs", True, "algorithm.rollout_correction.bypass_mode", False),
        ("training", "recompute_log_probs", False, "algorithm.rollout_correction.bypass_mode", True),
        ("training", "recompute_log_probs", "auto", "algorithm.rollout_correction.bypass_mode", False),
        ("training", "importance_cap", 3.0, "algorithm.rollout_correction.rollout_is_threshold", 3.0),
        ("training", "importance_cap", 3.0, "algorithm.rollout_correction.rollout_is", "token"),
        ("training", "loss", "ppo", "actor_rollout_ref.actor.policy_loss.loss_mode", "vanilla"),
        ("training", "loss", "gspo", "actor_rollout_ref.actor.policy_loss.loss_mode", "gspo"),
        ("training", "loss", "cispo", "actor_rollout_ref.actor.policy_loss.loss_mode", "cispo"),
        ("training", "loss_aggregation", "constant", "actor_rollout_ref.actor.loss_agg_mode", "token-sum"),
        ("training", "mini_batch_size", 4, "actor_rollout_ref.actor.ppo_mini_batch_size", 1),
        ("evaluation", "every", 5, "trainer.test_freq", 5),
        ("evaluation", "every", 0, "trainer.test_freq", 160),
        ("evaluation", "temperature", 0.0, "actor_rollout_ref.rollout.val_kwargs.do_sample", False),
        ("verl", "evaluate_only", True, "trainer.val_only", True),
        ("verl", "evaluate_only", True, "actor_rollout_ref.actor.use_kl_loss", False),
        ("verl", "evaluate_only", True, "actor_rollout_ref.actor.fsdp_config.forward_only", True),
        ("verl", "evaluate_only", False, "actor_rollout_ref.actor.fsdp_config.forward_only", False),
        ("tracking", "to", ["trackio"], "trainer.logger", ["console", "trackio"]),
        ("critic", "learning_rate", 3e-5, "critic.optim.lr", 3e-5),
        ("critic", "value_clip", 0.2, "critic.cliprange_value", 0.2),
        ("critic", "value_clip", "none", "critic.cliprange_value", 1e9),
        ("critic", "pretrain_updates", 0, "trainer.critic_warmup", 0),
        ("critic", "pretrain_updates", 5, "trainer.critic_warmup", 6),  # verl trains the policy from this update on
        ("training", "epochs", 2, "critic.ppo_epochs", 2),
        ("training", "max_gradient_norm", 0.5, "critic.optim.clip_grad", 0.5),
        ("policy", "model", "some/model", "critic.model.path", "some/model"),
        ("policy", "lora", {"rank": 8}, "critic.model.lora_rank", 8),
    ],
)
def test_a_setting_arrives(section: str, name: str, value: Any, verl_name: str, verl_value: Any) -> None:
    tree: dict[str, Any] = {"policy": {"model": "some/model"}, **PPO}
    tree[section] = {**tree.get(section, {}), name: value}
    assert mapped(**tree)[verl_name] == verl_value


CPU, VLLM_ON_CPU = {"model": "some/model", "device": "cpu"}, {"rollout": "vllm-cpu"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {},
            {
                "actor_rollout_ref.rollout.name": "vllm",
                "actor_rollout_ref.rollout.max_model_len": 4096 + 512,
                "actor_rollout_ref.actor.fsdp_config.model_dtype": "fp32",
                "actor_rollout_ref.ref.fsdp_config.model_dtype": "bf16",
            },
        ),
        (
            {"policy": {"model": "some/model", "precision": "float32"}},
            {
                "actor_rollout_ref.ref.fsdp_config.model_dtype": "fp32",
                "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
            },
        ),
        (
            {"policy": CPU},
            {
                "actor_rollout_ref.rollout.name": "hgpo_transformers",
                "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "float32",
                "actor_rollout_ref.actor.use_torch_compile": False,
                "actor_rollout_ref.ref.fsdp_config.model_dtype": "fp32",
                "algorithm.rollout_correction.bypass_mode": True,  # the sampler's log-probs are the trainer's
                "trainer.device": "cpu",
            },
        ),
        (
            {"policy": CPU, "verl": VLLM_ON_CPU},
            {
                "actor_rollout_ref.rollout.name": "vllm",
                "actor_rollout_ref.rollout.free_cache_engine": False,
                "actor_rollout_ref.rollout.engine_kwargs.vllm.enable_sleep_mode": False,
                "algorithm.rollout_correction.bypass_mode": False,
            },
        ),
    ],
)
def test_a_device_decides_engine_and_precision(sections: dict[str, Any], expected: dict[str, Any]) -> None:
    settings = config(**sections)
    found = {**of_mapped(settings), **suggested(settings)}
    assert {name: found[name] for name in expected} == expected
    assert any("engine_kwargs" in name for name in found) is (settings.verl.rollout == "vllm-cpu")


def other_than(name: str, value: Any) -> Any:
    if name == "recompute_log_probs":  # auto is true here
        return False
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return get_args(TrainingSettings.model_fields[name].annotation)[1]
    return value / 2 if isinstance(value, float) else (value // 4 or 3)


def test_verl_is_told_every_setting_of_the_update_that_is_not_this_projects_own_to_carry_out() -> None:
    before, silent = config(), set()
    for name in TrainingSettings.model_fields:
        training = before.training.model_copy(update={name: other_than(name, getattr(before.training, name))})
        after = before.model_copy(update={"training": training})
        if (of_mapped(after), suggested(after)) == (of_mapped(before), suggested(before)):
            silent.add(name)
    # What is skipped is taken from the batch before verl sees it (`hgpo.integrations.verl.queue.skipped`), and old
    # checkpoints are deleted once the newest is published (`hgpo.integrations.verl.checkpoints`). The agent loop keeps
    # the prompt of a cut state. The aggregation travels with the batch (`hgpo.integrations.verl.engine`).
    own = {"skip_zero_advantage", "skip_cut_responses", "keep_checkpoints", "bootstrap_truncated"}
    own |= {"loss_aggregation", "loss_micro_batch_rows"}
    assert silent == own | {
        name for name in TrainingSettings.model_fields if "verl" not in engines_of(f"training.{name}")
    }


def test_without_a_cap_or_without_old_log_probs_of_the_trainer_no_token_is_weighted() -> None:
    for training in ({"importance_cap": "none"}, {"recompute_log_probs": False}):
        assert "algorithm.rollout_correction.rollout_is" not in mapped(training=training)


def test_an_adapter_is_told_in_verls_words() -> None:
    found = mapped(policy={"model": "some/model", "lora": {"rank": 16, "targets": ["q_proj", "v_proj"]}})
    prefix = "actor_rollout_ref.model."
    assert (found[prefix + "lora_rank"], found[prefix + "lora_alpha"]) == (16, 32)
    assert found[prefix + "target_modules"] == ["q_proj", "v_proj"]
    assert mapped()[prefix + "lora_rank"] == 0
    with pytest.raises(ConfigError, match=r"policy\.lora\.alpha = 1\.5"):
        check_for_verl(config(policy={"model": "some/model", "lora": {"rank": 1, "alpha": 1.5}}))


@pytest.mark.parametrize(("rollout", "expected"), [("vllm", 4608), ("sglang", 4609)])
def test_the_longest_prompt_leaves_room_for_the_longest_response(rollout: str, expected: int) -> None:
    """verl bounds a response of SGLang by `max_model_len` - prompt - 1."""
    assert suggested(config(verl={"rollout": rollout}))["actor_rollout_ref.rollout.max_model_len"] == expected


def stored_rows(**sections: Any) -> int:
    return int(suggested(config(**sections))["transfer_queue.backend.SimpleStorage.total_storage_size"])


def test_the_queue_holds_an_evaluation_and_the_batches_that_are_sampled_ahead() -> None:
    more = {"overrides": {"trainer": {"v1": {"colocate_async": {"num_warmup_batches": 2.5}}}}}
    rows = [
        stored_rows(verl={"mode": "sync", **more}),
        *(stored_rows(verl={"mode": "colocate_async", **one}) for one in ({}, more)),
    ]
    assert rows[0] >= 256 * 50
    assert (rows[1] - rows[0], rows[2] - rows[1]) == (256 * 50, 2 * 256 * 50)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {"mini_batch_size": 255}, "verl": {"gpus_per_node": 2}}, "take a multiple of 2"),
        ({"verl": {"gpus_per_node": 3, "tensor_parallel": 2}, "training": {"mini_batch_size": 3}}, "does not divide"),
        (  # verl would start the second copy on the first node, with two GPUs of the first copy
            {"verl": {"nodes": 2, "gpus_per_node": 6, "tensor_parallel": 4}, "training": {"mini_batch_size": 12}},
            "does not divide",
        ),
        ({"training": {"updates": 0}}, "evaluate_only"),
        ({"policy": {"model": "some/model", "device": "cuda:1"}}, "policy.device = 'cuda:1'"),
        ({"policy": {"model": "some/model", "device": "mps"}}, "policy.device = 'mps'"),
        ({"verl": {"rollout": "vllm-cpu"}}, "needs policy.device = cpu"),
        (
            {"verl": {"rollout": "vllm-cpu"}, "policy": {"model": "m", "device": "cpu", "lora": {"rank": 4}}},
            "policy.lora.rank = 4",
        ),
        (
            {
                "verl": {"tensor_parallel": 2, "gpus_per_node": 2},
                "policy": {"model": "some/model", "device": "cpu"},
            },
            "every process has a copy of the built-in sampler",
        ),
        (
            {"verl": {"overrides": {"actor_rollout_ref": {"rollout": {"max_model_len": 4607}}}}},
            r"max_model_len = 4607: .* at least 4608",
        ),
        ({"policy": {"model": "models/small.gguf"}}, "verl loads only folders and the main branch"),
        ({"policy": {"model": "some/model", "revision": "v1"}}, "verl loads only folders and the main branch"),
        ({"environment": {"name": "registered-by-hand"}}, "registered only in this process"),
    ],
)
def test_unsupported_settings_are_rejected(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_for_verl(config(**sections))
    check_for_verl(config(environment={"name": "corridor:CorridorSuite"}))


def test_dotted_values_name_everything_that_is_set() -> None:
    assert dict(dotted_values({"a": {"b": 1, "c": {"d": [2]}}, "e": {}})) == {"a.b": 1, "a.c.d": [2], "e": {}}


@pytest.mark.parametrize(("nodes", "gpus", "units"), [(1, 1, 1), (1, 2, 1), (1, 4, 2), (2, 8, 4)])
def test_the_queue_holds_few_cpus(nodes: int, gpus: int, units: int) -> None:
    found = suggested(config(verl={"nodes": nodes, "gpus_per_node": gpus}))
    assert found["transfer_queue.backend.SimpleStorage.num_data_storage_units"] == units


# ---- overrides -----------------------------------------------------------------------------------------------------

FIXED = {
    "data.custom_cls.name",
    "data.custom_cls.path",
    "data.dataloader_num_workers",
    "data.shuffle",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.actor.shuffle",
    "actor_rollout_ref.actor.calculate_entropy",
    "actor_rollout_ref.actor.kl_loss_type",
    "actor_rollout_ref.actor.checkpoint.async_save",
    "actor_rollout_ref.actor.checkpoint.save_contents",
    "actor_rollout_ref.ref.strategy",
    "actor_rollout_ref.rollout.mode",
    "actor_rollout_ref.rollout.val_kwargs.n",
    "actor_rollout_ref.rollout.val_kwargs.top_k",
    "actor_rollout_ref.rollout.val_kwargs.top_p",
    "algorithm.filter_groups.enable",
    "actor_rollout_ref.rollout.top_k",
    "actor_rollout_ref.rollout.top_p",
    "actor_rollout_ref.rollout.calculate_log_probs",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "actor_rollout_ref.rollout.agent.default_agent_loop",
    "trainer.balance_batch",
    "trainer.log_val_generations",
    "trainer.validation_data_dir",
    "trainer.use_v1",
    "trainer.val_before_train",
    "trainer.resume_mode",
    "trainer.project_name",
}


def everything() -> dict[str, Mapped]:
    """All that can be mapped."""
    settings = config(policy={"model": "m", "lora": {"rank": 4}}, training={"recompute_log_probs": True})
    return mapped_settings(settings, "m", RUN)


def test_every_setting_of_verl_is_decided_by_a_setting_of_the_recipe_or_fixed() -> None:
    known = {name for name, _, _ in checks.leaves(config())}
    assert {one.owner for one in everything().values()} - known == {""}
    assert {name for name, one in everything().items() if not one.owner} == FIXED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("actor_rollout_ref.rollout.n", r"is determined by the recipe's rollout\.group_size: set that instead"),
        ("actor_rollout_ref.rollout.val_kwargs", r"determined by the recipe's evaluation\.temperature"),
        ("algorithm.norm_adv_by_std_in_grpo", r"determined by the recipe's advantage\.estimator"),
        ("critic.enable", r"determined by the recipe's advantage\.estimator"),
        ("trainer.n_gpus_per_node", r"determined by the recipe's verl\.gpus_per_node: set that instead"),
        ("data.shuffle", r"verl\.overrides\.data\.shuffle cannot be changed"),
        ("trainer.rollout_data_dir", r"determined by the recipe's rollout\.store_every"),
        ("trainer.validation_data_dir", "cannot be changed"),
        ("trainer.log_val_generations", "cannot be changed"),
        ("trainer.balance_batch", "cannot be changed"),
    ],
)
def test_an_override_of_what_the_recipe_decides_is_rejected(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reject_owned(name, everything(), recomputes_log_probs=True)
    reject_owned("actor_rollout_ref.rollout.gpu_memory_utilization", everything(), recomputes_log_probs=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("actor_rollout_ref.model.lora_rank", r"determined by the recipe's policy\.lora\.rank"),
        ("actor_rollout_ref.model.lora_adapter_path", r"determined by the recipe's policy\.model"),
        ("actor_rollout_ref.rollout.response_length", r"determined by the recipe's policy\.max_response_tokens"),
        ("actor_rollout_ref.actor.optim.lr_warmup_steps_ratio", r"determined by the recipe's training\.warmup_updates"),
        ("ray_kwargs.ray_init.num_cpus", r"has no effect, .*: set verl\.ray_cpus"),
    ],
)
def test_a_setting_that_the_recipe_leaves_at_its_default_is_the_recipes_too(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reject_owned(name, mapped_settings(config(), "m", RUN), recomputes_log_probs=True)


# ---- the critic ------------------------------------------------------------------------------------------------------


def test_a_critic_is_trained_where_the_estimator_needs_values() -> None:
    assert mapped()["critic.enable"] is False
    assert mapped(critic={"shared": True})["critic.enable"] is False  # the table is passed over
    assert mapped(**PPO)["critic.enable"] is True
    assert mapped(**PPO, verl={"evaluate_only": True})["critic.enable"] is False  # it would have an optimiser
    assert mapped(advantage={"estimator": "gigpo", "options": {"baseline": "critic"}})["critic.enable"] is True


def test_verl_is_told_every_setting_of_the_critic_that_is_not_this_projects_own_to_carry_out() -> None:
    before, silent = config(**PPO), set()
    for name in CriticSettings.model_fields:
        changed = {"target_lambda": 0.5}.get(name) or other_than(name, getattr(before.critic, name))
        critic = before.critic.model_copy(update={name: changed})
        if of_mapped(before.model_copy(update={"critic": critic})) == of_mapped(before):
            silent.add(name)
    unread = {name for name in CriticSettings.model_fields if "verl" not in engines_of(f"critic.{name}")}
    assert silent == {"target_lambda"} | unread  # the trainer computes the targets


def test_the_critic_takes_over_what_is_set_for_the_policys_memory() -> None:
    found = suggested(config(**PPO))
    assert found["critic.fsdp.param_offload"] == "${actor_rollout_ref.actor.fsdp_config.param_offload}"
    assert not [name for name in suggested(config()) if name.startswith("critic.")]


def test_a_critic_on_the_policys_layers_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"critic\.shared = True is used only by the engine 'built-in'"):
        checks.refuse_unread(config(**PPO, critic={"shared": True}), "verl")
