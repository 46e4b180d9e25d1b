"""Recipes composed with verl's own configuration classes. Runs where verl is installed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from hgpo.config import Config, ConfigError, Loss, LossAggregation, load_config
from hgpo.envs.registry import names

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from verl.checkpoint_engine import CheckpointEngineRegistry
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.v1 import PPOTrainer, get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.import_utils import import_external_libs
from verl.workers.config import ActorConfig, CheckpointEngineConfig

import hgpo.integrations.verl.trainers  # noqa: F401, registers them
from hgpo.integrations.verl import launch, verl_api
from hgpo.integrations.verl.launch import compose, recipe_of
from published_recipes import EVALUATION, ROWS, Row, overrides_of

RECIPES = Path(__file__).parents[2] / "recipes"
EVALUATIONS = [row for row in ROWS if (row.size, row.k, row.estimator) == ("1.5b", 2, "hgpo")]


def load(row: Row, overrides: Sequence[str] = ()) -> Config:
    if row.environment == "webshop" and "webshop" not in names():
        pytest.skip("the environment 'webshop' is not registered as an entry point")
    return load_config(row.recipe, [*overrides_of(row), *overrides])


def composed(config: Config) -> Any:
    return compose(config, run_directory=Path("/runs/one"))


def small(**sections: Any) -> Config:
    tree = {"policy": {"model": "some/model"}, "environment": {"options": {"size": "small"}}, **sections}
    return Config.model_validate(tree)


def check_rollouts(config: Config, found: Any) -> None:
    rollout = found.actor_rollout_ref.rollout
    assert rollout.name == "vllm"
    assert found.actor_rollout_ref.actor.strategy == found.actor_rollout_ref.ref.strategy == "fsdp2"
    assert (found.data.max_prompt_length, found.data.max_response_length) == (4096, 512)
    assert rollout.val_kwargs.temperature == pytest.approx(0.4)
    assert recipe_of(found)[0] == config


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_published_row_is_composed_and_validated(row: Row) -> None:
    config = load(row)
    found = composed(config)
    check_rollouts(config, found)
    actor, rollout = found.actor_rollout_ref.actor, found.actor_rollout_ref.rollout
    assert (found.data.train_batch_size, rollout.n, found.trainer.total_training_steps) == (16, 8, 160)
    assert actor.fsdp_config.mixed_precision.param_dtype == "bfloat16"
    assert actor.optim.lr == pytest.approx(1e-6)
    assert (found.trainer.test_freq, found.trainer.save_freq) == (5, 40)
    assert found.trainer.n_gpus_per_node == (2 if row.size == "1.5b" else 4)


@pytest.mark.parametrize("row", EVALUATIONS, ids=lambda row: row.environment)
def test_an_evaluation_is_composed_and_validated(row: Row) -> None:
    config = load(row, [*EVALUATION, "run.engine=verl"])
    found = composed(config)
    check_rollouts(config, found)
    assert found.trainer.val_only


def test_a_templates_text_reaches_the_workers_as_it_stands() -> None:
    """OmegaConf, which holds verl's settings, would replace `${…}`, and reject `${`."""
    config = small(agent={"template": "{observation} costs ${{price}}, ${actions} or ${{\n"})
    assert recipe_of(composed(config))[0] == config


def test_the_quickstart_trains_on_verl_too() -> None:
    found = composed(load_config(RECIPES / "quickstart" / "hgpo.toml", ["policy.device=cpu", "verl.gpus_per_node=2"]))
    assert found.trainer.device == "cpu"
    assert found.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "float32"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_every_mode_is_composed_and_taken_by_verls_trainer(mode: str, device: str, monkeypatch: Any) -> None:
    found = composed(
        small(
            run={"engine": "verl"},
            policy={"model": "some/model", "device": device},
            verl={"mode": mode, "rollout_gpus": 2 if mode == "separate_async" else 1},
        )
    )
    trainer_class = get_trainer_cls(found.trainer.v1.trainer_mode)
    monkeypatch.setattr(PPOTrainer, "__init__", lambda self, config: setattr(self, "config", config))
    trainer = trainer_class(found)  # what verl asserts of its settings
    assert trainer.trainer_mode == mode
    expected = ReplayBuffer if mode == "sync" else ReplayBufferAsync
    assert type(trainer._build_replay_buffer()) is expected
    correction, rollout = found.algorithm.rollout_correction, found.actor_rollout_ref.rollout
    assert correction.bypass_mode is (mode == "sync" and device == "cpu")
    assert correction.rollout_is == ("token" if not correction.bypass_mode else None)
    assert (rollout.nnodes * rollout.n_gpus_per_node == 2) is (mode == "separate_async")
    engine: CheckpointEngineConfig = omega_conf_to_dataclass(rollout.checkpoint_engine)
    if device == "cpu":  # verl's own for GPUs needs CUDA
        import_external_libs(engine.custom_backend_module or None)
        assert CheckpointEngineRegistry.get(engine.backend)


def test_every_loss_is_one_of_verls_and_its_rows_have_weights() -> None:
    for loss, aggregation in product(get_args(Loss), get_args(LossAggregation)):
        found = composed(small(training={"loss": loss, "loss_aggregation": aggregation}))
        actor: ActorConfig = omega_conf_to_dataclass(found.actor_rollout_ref.actor)
        assert get_policy_loss_fn(actor.policy_loss.loss_mode)
        assert actor.loss_agg_mode == "token-sum"


def test_an_adapter_is_trained_and_saved_alone_and_the_rollout_engine_loads_its_base_itself() -> None:
    found = composed(small(policy={"model": "some/model", "lora": {"rank": 16, "alpha": 64}})).actor_rollout_ref
    assert (found.model.lora_rank, found.model.lora_alpha, found.model.target_modules) == (16, 64, "all-linear")
    actor: ActorConfig = omega_conf_to_dataclass(found.actor)
    assert actor.checkpoint.save_lora_only
    assert found.rollout.load_format == "safetensors"


def test_an_override_under_verls_own_name_arrives() -> None:
    overrides = {
        "actor_rollout_ref": {
            "rollout": {"gpu_memory_utilization": 0.4, "engine_kwargs": {"vllm": {"swap_space": 8}}},
            "actor": {"fsdp_config": {"param_offload": True}},
        }
    }
    found = composed(small(verl={"overrides": overrides}))
    assert found.actor_rollout_ref.rollout.gpu_memory_utilization == pytest.approx(0.4)
    assert found.actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space == 8
    assert found.actor_rollout_ref.actor.fsdp_config.param_offload is True


def test_a_critic_takes_over_the_policys_attention_and_memory_unless_it_has_its_own() -> None:
    model, engine = {"override_config": {"attn_implementation": "sdpa"}}, {"fsdp_config": {"param_offload": True}}
    overrides = {
        "actor_rollout_ref": {"model": model, "actor": engine},
        "critic": {"fsdp": {"optimizer_offload": True}, "model": {"enable_activation_offload": True}},
    }
    found = composed(small(advantage={"estimator": "gae"}, verl={"overrides": overrides})).critic
    assert found.enable is True
    assert found.model.override_config.attn_implementation == "sdpa"
    assert (found.fsdp.param_offload, found.fsdp.optimizer_offload) == (True, True)
    assert found.fsdp.mixed_precision.param_dtype == "bfloat16"
    assert (found.model.enable_gradient_checkpointing, found.model.enable_activation_offload) == (True, True)
    assert found.ppo_infer_max_token_len_per_gpu == found.ppo_max_token_len_per_gpu > 4096
    assert composed(small()).critic.enable is False


def test_what_the_recipe_leaves_open_of_the_correction_is_verls() -> None:
    rejecting = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}
    overrides = {"algorithm": {"rollout_correction": rejecting}}
    found = composed(small(verl={"overrides": overrides}, run={"engine": "verl"})).algorithm.rollout_correction
    assert (found.rollout_rs, found.rollout_rs_threshold) == ("token_k1", "0.5_2.0")
    assert (found.rollout_is, found.rollout_is_threshold, found.bypass_mode) == ("token", 2.0, False)
    uncapped = {"importance_cap": "none", "recompute_log_probs": True}
    by_sequence = {"algorithm": {"rollout_correction": {"rollout_is": "sequence"}}}
    found = composed(small(verl={"overrides": by_sequence}, training=uncapped)).algorithm.rollout_correction
    assert found.rollout_is == "sequence"
    with pytest.raises(ConfigError, match=r"set training\.recompute_log_probs = true, too"):
        composed(small(verl={"overrides": overrides}, training={"recompute_log_probs": False}))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"actor_rollout_ref": {"rollout": {"gpu_memory": 0.4}}},
            r"verl\.overrides: verl .* has no settings actor_rollout_ref\.rollout\.gpu_memory",
        ),
        (
            {"algorithm": {"rollout_correction": {"rollout_is": "sequence"}}},
            r"determined by .* training\.importance_cap",
        ),
        (
            {"actor_rollout_ref": {"actor": {"optim": {"lr": 1e-5}}}},
            r"optim\.lr is determined by .* training\.learning_rate",
        ),
        ({"actor_rollout_ref": {"actor": {"strategy": "megatron"}}}, "actor.strategy cannot be changed"),
        ({"actor_rollout_ref": {"rollout": {"pipeline_model_parallel_size": 2}}}, "verl refuses these settings"),
    ],
)
def test_an_override_that_cannot_be_meant_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        composed(small(run={"engine": "verl"}, verl={"overrides": overrides}))


def test_all_settings_that_verl_no_longer_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_api, "READ_SETTINGS", ("trainer.gone", *verl_api.READ_SETTINGS))
    monkeypatch.setattr(launch, "suggested_for_mode", lambda *settings: {"critic.gone": 1})
    with pytest.raises(ConfigError, match=r"has no settings trainer\.gone, critic\.gone; hgpo supports verl>=0\.9\.1"):
        composed(small())


def test_a_configuration_that_did_not_come_from_a_recipe_is_refused() -> None:
    with pytest.raises(ConfigError, match="start the run with `hgpo train"):
        recipe_of({})
