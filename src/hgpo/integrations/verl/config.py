"""Translates a recipe's settings to verl's settings, by verl's dotted names. Does not import verl.

The recipe's own tables decide `mapped_settings`, so `[verl.overrides]` must not set them. `suggested_settings` affect
speed and memory; `[verl.overrides]` may change them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from hgpo.config import VLLM_ON_CPU, Config, ConfigError, Loss, TrainingSettings
from hgpo.config.settings import CriticSettings, PolicySettings, VerlSettings
from hgpo.envs.registry import SUITES
from hgpo.plugins import installed_parts
from hgpo.runs.trackers import tracker_names

Settings = dict[str, Any]
"""Dotted name of verl's setting -> its value."""

CPU_ROLLOUT = "hgpo_transformers"
CORRECTION = "algorithm.rollout_correction"
STORED_ROWS = "transfer_queue.backend.SimpleStorage.total_storage_size"
_LOSSES: dict[Loss, str] = {"ppo": "vanilla", "gspo": "gspo", "cispo": "cispo"}
_STRATEGY = "fsdp2"  # the repairs in `engine` are for it, and verl has no other on a CPU
_NO_CLIP = 1e9  # verl cannot disable clipping; this bound is never reached
_NO_EPOCH_LIMIT = 10**9
_EPISODES_PER_VALIDATION_BATCH = 256
_DEVICES = ("auto", "cuda", "cpu")
_ACTOR, _MODEL, _ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "rollout"))
_OF_CRITICS_MODEL = (
    "override_config",
    "use_remove_padding",
    "enable_gradient_checkpointing",
    "enable_activation_offload",
    "trust_remote_code",
)
_OF_CRITICS_ENGINE = (
    "param_offload",
    "optimizer_offload",
    "offload_policy",
    "ulysses_sequence_parallel_size",
    "model_dtype",
    "mixed_precision",
)
_VLLM_ON_CPU: Settings = {
    f"{_ROLLOUT}.enforce_eager": True,
    f"{_ROLLOUT}.free_cache_engine": False,  # the worker does not sleep: there is no GPU memory to free
    f"{_ROLLOUT}.engine_kwargs.vllm.enable_sleep_mode": False,
    f"{_ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes": 2**30,
    f"{_ROLLOUT}.engine_kwargs.vllm.worker_extension_cls": "hgpo.integrations.verl.vllm_cpu.CpuWorkerExtension",
}


class Mapped(NamedTuple):
    """The value of a setting of verl, and the recipe's setting that decides it ("" if the value is fixed)."""

    value: Any
    owner: str = ""


# ---- what this engine cannot do ------------------------------------------------------------------------------------


def check_for_verl(config: Config) -> None:
    """Reject settings that this engine does not support.

    Raises:
        ConfigError: names the setting and the remedy.
    """
    environment, training, verl = config.environment.name, config.training, config.verl
    if ":" not in environment and not installed_parts(SUITES.group).select(name=environment):
        raise ConfigError(
            f"environment.name = {environment!r} is registered only in this process, and environments run in others: "
            "name it 'package.module:factory', or give its package an entry point (docs/environments.md)"
        )
    _check_policy(config.policy, verl, warm_start=config.warm_start.enabled)
    _check_ranks(training, verl)
    least = _context(config.policy, verl)
    given = dict(dotted_values(verl.overrides)).get(f"{_ROLLOUT}.max_model_len")
    if isinstance(given, int) and given < least:
        raise ConfigError(
            f"verl.overrides.{_ROLLOUT}.max_model_len = {given}: responses would be cut before "
            f"policy.max_response_tokens; take at least {least}, or lower policy.max_prompt_tokens"
        )
    if training.updates == 0 and not verl.evaluate_only:
        raise ConfigError("training.updates = 0: to evaluate without training, set verl.evaluate_only = true")


def _check_policy(policy: PolicySettings, verl: VerlSettings, *, warm_start: bool) -> None:
    if policy.device not in _DEVICES:
        raise ConfigError(
            f"policy.device = {policy.device!r}: verl gives each training process its own GPU and accepts "
            f"{' or '.join(map(repr, _DEVICES))}; CUDA_VISIBLE_DEVICES selects the GPUs"
        )
    if verl.rollout == VLLM_ON_CPU and not on_cpu(policy):
        raise ConfigError(f"verl.rollout = {VLLM_ON_CPU!r} needs policy.device = cpu; on GPUs, use verl.rollout = vllm")
    if vllm_on_cpu(policy, verl) and policy.lora.rank:
        raise ConfigError(
            f"policy.lora.rank = {policy.lora.rank}: verl 0.9 sends adapters only to vLLM 0.24, which has no CPU build "
            f"for PyPI's PyTorch; leave verl.rollout = {VLLM_ON_CPU!r} out"
        )
    if on_cpu(policy) and not vllm_on_cpu(policy, verl) and verl.tensor_parallel > 1:
        raise ConfigError(
            f"verl.tensor_parallel = {verl.tensor_parallel}: with policy.device = cpu, every process has a copy of the "
            f"built-in sampler; leave it out, or set verl.rollout = {VLLM_ON_CPU!r}"
        )
    if policy.lora.alpha is not None and not policy.lora.alpha.is_integer():
        raise ConfigError(f"policy.lora.alpha = {policy.lora.alpha}: verl accepts only whole numbers")
    if not warm_start and (policy.revision is not None or policy.model.lower().endswith(".gguf")):
        raise ConfigError(
            f"policy.model = {policy.model!r}, policy.revision = {policy.revision!r}: verl loads only folders and the "
            "main branch of hub names; download the model into a folder and name the folder"
        )


def _check_ranks(training: TrainingSettings, verl: VerlSettings) -> None:
    ranks = verl.nodes * verl.gpus_per_node
    if training.mini_batch_size % ranks:
        raise ConfigError(
            f"training.mini_batch_size = {training.mini_batch_size} cannot be divided among {ranks} training processes "
            f"(verl.nodes * verl.gpus_per_node); take a multiple of {ranks}"
        )
    size, per_node = verl.tensor_parallel, verl.gpus_per_node
    # verl starts a copy on the node of its first GPU, unless the copy has whole nodes.
    if per_node % size and (size % per_node or ranks % size):
        raise ConfigError(
            f"verl.tensor_parallel = {size} does not divide verl.gpus_per_node = {per_node}, nor is a copy of the "
            f"rollout engine several whole nodes of {verl.nodes}"
        )


def on_cpu(policy: PolicySettings) -> bool:
    """Whether training processes run on CPUs."""
    return policy.device == "cpu"


def vllm_on_cpu(policy: PolicySettings, verl: VerlSettings) -> bool:
    """Whether vLLM's build for CPUs samples."""
    return on_cpu(policy) and verl.rollout == VLLM_ON_CPU


def _context(policy: PolicySettings, verl: VerlSettings) -> int:
    """Positions for the longest prompt and response; verl leaves one of SGLang's unused."""
    return policy.max_prompt_tokens + policy.max_response_tokens + (verl.rollout == "sglang")


def vllm_environment() -> dict[str, str]:
    """Environment variables for processes with vLLM's CPU build."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",  # otherwise the first request compiles a function of the sampler
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"  # must be loaded before PyTorch's own OpenMP
    return {**variables, "LD_PRELOAD": str(openmp)} if openmp.exists() else variables


def dotted_values(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every value in nested tables. An empty table is a value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from dotted_values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# ---- settings that follow from the recipe --------------------------------------------------------------------------


def mapped_settings(config: Config, model: str, run_directory: Path) -> dict[str, Mapped]:
    """verl's settings that the recipe decides, each with the recipe's setting that decides it.

    Args:
        config: the recipe.
        model: folder or hub name of the start policy.
        run_directory: the run's folder.
    """
    training, policy, rollout, verl = config.training, config.policy, config.rollout, config.verl
    seed, recomputes, updates = config.run.seed, config.recomputes_log_probs, max(1, config.training.updates)
    temperature, cap = config.evaluation.temperature, training.importance_cap
    engine = CPU_ROLLOUT if on_cpu(policy) else verl.rollout
    # verl validates a mini-batch size in tasks; the trainer makes mini-batches of steps (`queue.cut`).
    tasks = min(rollout.tasks_per_update, max(1, training.mini_batch_size // rollout.group_size))
    found = {
        "data.train_files": Mapped("hgpo", "environment.train_split"),
        "data.val_files": Mapped("hgpo", "evaluation.split"),
        "data.custom_cls.path": Mapped("pkg://hgpo.integrations.verl.agent_loop"),
        "data.custom_cls.name": Mapped("TaskRows"),
        "data.train_batch_size": Mapped(rollout.tasks_per_update, "rollout.tasks_per_update"),
        "data.max_prompt_length": Mapped(policy.max_prompt_tokens, "policy.max_prompt_tokens"),
        "data.max_response_length": Mapped(policy.max_response_tokens, "policy.max_response_tokens"),
        "data.dataloader_num_workers": Mapped(0),
        "data.shuffle": Mapped(False),
        "data.seed": Mapped(seed, "run.seed"),
        f"{_MODEL}.path": Mapped(model, "policy.model"),
        "actor_rollout_ref.ref.strategy": Mapped(_STRATEGY),
        f"{_ACTOR}.strategy": Mapped(_STRATEGY),
        f"{_ACTOR}.ppo_mini_batch_size": Mapped(tasks, "training.mini_batch_size"),
        f"{_ACTOR}.ppo_epochs": Mapped(training.epochs, "training.epochs"),
        f"{_ACTOR}.use_dynamic_bsz": Mapped(True, "training.micro_batch_tokens"),
        f"{_ACTOR}.shuffle": Mapped(True),
        f"{_ACTOR}.data_loader_seed": Mapped(seed, "run.seed"),
        f"{_ACTOR}.grad_clip": Mapped(training.max_gradient_norm, "training.max_gradient_norm"),
        # verl reads this one
        f"{_ACTOR}.optim.clip_grad": Mapped(training.max_gradient_norm, "training.max_gradient_norm"),
        f"{_ACTOR}.optim.lr": Mapped(training.learning_rate, "training.learning_rate"),
        f"{_ACTOR}.optim.weight_decay": Mapped(training.weight_decay, "training.weight_decay"),
        f"{_ACTOR}.optim.lr_scheduler_type": Mapped(training.learning_rate_schedule, "training.learning_rate_schedule"),
        f"{_ACTOR}.optim.lr_warmup_steps": Mapped(training.warmup_updates, "training.warmup_updates"),
        f"{_ACTOR}.optim.lr_warmup_steps_ratio": Mapped(0.0, "training.warmup_updates"),
        f"{_ACTOR}.checkpoint.save_contents": Mapped(["model", "optimizer", "extra", "hf_model"]),
        f"{_ACTOR}.checkpoint.async_save": Mapped(False),  # verl would not record a checkpoint as the newest
        f"{_ACTOR}.clip_ratio": Mapped(training.clip_low, "training.clip_low"),
        f"{_ACTOR}.clip_ratio_low": Mapped(training.clip_low, "training.clip_low"),
        f"{_ACTOR}.clip_ratio_high": Mapped(training.clip_high, "training.clip_high"),
        f"{_ACTOR}.clip_ratio_c": Mapped(training.dual_clip or _NO_CLIP, "training.dual_clip"),
        f"{_ACTOR}.policy_loss.loss_mode": Mapped(_LOSSES[training.loss], "training.loss"),
        # Tokens already have their weights (`hgpo.integrations.verl.engine`), so the loss is a sum.
        f"{_ACTOR}.loss_agg_mode": Mapped("token-sum", "training.loss_aggregation"),
        # The entropy's gradient needs as much memory as the logits. The entropy is computed only if it is in the loss,
        # or if no pass for old log-probs reports it.
        f"{_ACTOR}.calculate_entropy": Mapped(training.entropy_coefficient > 0 or not recomputes),
        f"{_ACTOR}.entropy_coeff": Mapped(training.entropy_coefficient, "training.entropy_coefficient"),
        # Without a KL term verl loads no reference; an evaluation needs neither a reference nor an optimiser.
        f"{_ACTOR}.use_kl_loss": Mapped(
            training.kl_coefficient > 0 and not verl.evaluate_only, "training.kl_coefficient"
        ),
        f"{_ACTOR}.fsdp_config.forward_only": Mapped(verl.evaluate_only, "verl.evaluate_only"),
        f"{_ACTOR}.kl_loss_coef": Mapped(training.kl_coefficient, "training.kl_coefficient"),
        f"{_ACTOR}.kl_loss_type": Mapped("low_var_kl"),
        f"{_ROLLOUT}.name": Mapped("vllm" if vllm_on_cpu(policy, verl) else engine, "verl.rollout"),
        f"{_ROLLOUT}.mode": Mapped("async"),
        f"{_ROLLOUT}.n": Mapped(rollout.group_size, "rollout.group_size"),
        f"{_ROLLOUT}.temperature": Mapped(rollout.temperature, "rollout.temperature"),
        f"{_ROLLOUT}.top_k": Mapped(-1),
        f"{_ROLLOUT}.top_p": Mapped(1.0),
        f"{_ROLLOUT}.prompt_length": Mapped(policy.max_prompt_tokens, "policy.max_prompt_tokens"),
        f"{_ROLLOUT}.response_length": Mapped(policy.max_response_tokens, "policy.max_response_tokens"),
        f"{_ROLLOUT}.seed": Mapped(seed, "run.seed"),
        f"{_ROLLOUT}.calculate_log_probs": Mapped(True),
        f"{_ROLLOUT}.tensor_model_parallel_size": Mapped(verl.tensor_parallel, "verl.tensor_parallel"),
        f"{_ROLLOUT}.val_kwargs.temperature": Mapped(temperature, "evaluation.temperature"),
        f"{_ROLLOUT}.val_kwargs.do_sample": Mapped(temperature > 0, "evaluation.temperature"),
        f"{_ROLLOUT}.val_kwargs.n": Mapped(1),
        f"{_ROLLOUT}.val_kwargs.top_k": Mapped(-1),
        f"{_ROLLOUT}.val_kwargs.top_p": Mapped(1.0),
        f"{_ROLLOUT}.agent.num_workers": Mapped(verl.agent_workers, "verl.agent_workers"),
        f"{_ROLLOUT}.agent.agent_loop_manager_class": Mapped("hgpo.integrations.verl.agent_workers.EpisodeManager"),
        f"{_ROLLOUT}.agent.default_agent_loop": Mapped("hgpo"),  # a name; the manager's workers have only one
        # verl requires an estimator. It is never called: the trainer computes advantages itself.
        "algorithm.adv_estimator": Mapped("grpo", "advantage.estimator"),
        "algorithm.gamma": Mapped(config.advantage.gamma, "advantage.gamma"),
        "algorithm.use_kl_in_reward": Mapped(False, "training.kl_coefficient"),
        "algorithm.filter_groups.enable": Mapped(False),
        f"{CORRECTION}.bypass_mode": Mapped(not recomputes, "training.recompute_log_probs"),
        "trainer.total_training_steps": Mapped(updates, "training.updates"),
        "trainer.total_epochs": Mapped(_NO_EPOCH_LIMIT, "training.updates"),
        "trainer.test_freq": Mapped(config.evaluation.every or updates, "evaluation.every"),
        "trainer.save_freq": Mapped(training.checkpoint_every, "training.checkpoint_every"),
        # The trainer deletes old checkpoints after it has published the new one.
        "trainer.max_actor_ckpt_to_keep": Mapped(None, "training.keep_checkpoints"),
        "trainer.device": Mapped("cpu" if on_cpu(policy) else "cuda", "policy.device"),
        "trainer.nnodes": Mapped(verl.nodes, "verl.nodes"),
        "trainer.n_gpus_per_node": Mapped(verl.gpus_per_node, "verl.gpus_per_node"),
        "trainer.val_only": Mapped(verl.evaluate_only, "verl.evaluate_only"),
        "trainer.val_before_train": Mapped(True),
        "trainer.use_v1": Mapped(True),
        "trainer.resume_mode": Mapped("auto"),
        "trainer.default_local_dir": Mapped(str(run_directory / "verl"), "run.directory"),
        "trainer.project_name": Mapped("hgpo"),
        "trainer.experiment_name": Mapped(config.run.name, "run.name"),
        # verl would read columns that this project does not store, and stop; it stores steps in its own format.
        "trainer.rollout_data_dir": Mapped(None, "rollout.store_every"),
        # `hgpo.evaluation` evaluates and stores, so verl reads neither; it always balances batches.
        "trainer.validation_data_dir": Mapped(None),
        "trainer.log_val_generations": Mapped(0),
        "trainer.balance_batch": Mapped(True),
        "trainer.logger": Mapped(["console", *tracker_names(config.tracking, config.run.engine)], "tracking.to"),
    }
    found |= _lora(policy, _MODEL)
    if config.needs_critic and not verl.evaluate_only:
        found |= _critic(config.critic, training, policy, seed, model)
    else:
        found["critic.enable"] = Mapped(False, "advantage.estimator")
    if recomputes and cap is not None:  # truncated importance sampling per token, as in `hgpo.training.losses`
        found[f"{CORRECTION}.rollout_is"] = Mapped("token", "training.importance_cap")
        found[f"{CORRECTION}.rollout_is_threshold"] = Mapped(cap, "training.importance_cap")
    return found


def _lora(policy: PolicySettings, model: str) -> dict[str, Mapped]:
    """Settings of an adapter, also if there is none; `model` is verl's table."""
    targets = policy.lora.targets if isinstance(policy.lora.targets, str) else list(policy.lora.targets)
    return {
        f"{model}.lora_rank": Mapped(policy.lora.rank, "policy.lora.rank"),
        f"{model}.lora_alpha": Mapped(int(policy.lora.effective_alpha), "policy.lora.alpha"),
        f"{model}.target_modules": Mapped(targets, "policy.lora.targets"),
        f"{model}.lora_adapter_path": Mapped(None, "policy.model"),
    }


def _critic(
    critic: CriticSettings, training: TrainingSettings, policy: PolicySettings, seed: int, model: str
) -> dict[str, Mapped]:
    """Settings of verl's critic worker. The loss of a row uses one token (`hgpo.integrations.verl.critic`)."""
    pretraining = critic.pretrain_updates
    return {
        "critic.enable": Mapped(True, "advantage.estimator"),
        "critic.strategy": Mapped(_STRATEGY),
        "critic.model.path": Mapped(model, "policy.model"),
        **_lora(policy, "critic.model"),
        "critic.optim.lr": Mapped(critic.learning_rate, "critic.learning_rate"),
        "critic.optim.weight_decay": Mapped(training.weight_decay, "training.weight_decay"),
        "critic.optim.clip_grad": Mapped(training.max_gradient_norm, "training.max_gradient_norm"),
        "critic.grad_clip": Mapped(training.max_gradient_norm, "training.max_gradient_norm"),
        "critic.optim.lr_scheduler_type": Mapped("constant"),
        "critic.ppo_epochs": Mapped(training.epochs, "training.epochs"),
        "critic.use_dynamic_bsz": Mapped(True, "training.micro_batch_tokens"),
        "critic.shuffle": Mapped(True),
        "critic.data_loader_seed": Mapped(seed, "run.seed"),
        "critic.cliprange_value": Mapped(critic.value_clip or _NO_CLIP, "critic.value_clip"),
        "critic.loss_agg_mode": Mapped("token-mean"),
        "critic.checkpoint.save_contents": Mapped(["model", "optimizer", "extra"]),
        # Number of the first update that trains the policy.
        "trainer.critic_warmup": Mapped(pretraining + 1 if pretraining else 0, "critic.pretrain_updates"),
        "trainer.max_critic_ckpt_to_keep": Mapped(None, "training.keep_checkpoints"),
    }


def reject_owned(name: str, mapped: Mapping[str, Mapped], *, recomputes_log_probs: bool) -> None:
    """Reject an override of a setting that the recipe decides. `config.toml` and reports show the recipe's value.

    `name` is verl's name, which `[verl.overrides]` has; `mapped` are verl's settings that the recipe decides.

    Raises:
        ConfigError: names the setting of the recipe to change instead.
    """
    if name.startswith("ray_kwargs.ray_init"):
        raise ConfigError(
            f"verl.overrides.{name} has no effect, since verl does not start Ray here: set verl.ray_cpus, or start a "
            "cluster with `ray start` and set verl.ray_address"
        )
    of_correction = name.startswith(f"{CORRECTION}.")
    if of_correction and not recomputes_log_probs:
        raise ConfigError(
            f"verl.overrides.{name} has no effect unless the trainer recomputes log-probs: set "
            "training.recompute_log_probs = true, too"
        )
    owners = [one.owner for known, one in mapped.items() if f"{known}.".startswith(f"{name}.")]
    if not owners and name.startswith("algorithm.") and not of_correction:
        owners = ["advantage.estimator"]  # the table configures verl's own estimators, which are unused
    if owners and not owners[0]:
        raise ConfigError(f"verl.overrides.{name} cannot be changed: this engine supports only one value")
    if owners:
        raise ConfigError(f"verl.overrides.{name} is determined by the recipe's {owners[0]}: set that instead")


# ---- settings of speed and memory ----------------------------------------------------------------------------------


def suggested_settings(config: Config) -> Settings:
    """verl's settings for speed and memory; a recipe may override them. A critic has the policy's values."""
    policy, training, verl, critic = config.policy, config.training, config.verl, config.needs_critic
    cpu, tokens = on_cpu(policy), policy.max_prompt_tokens + policy.max_response_tokens
    episodes = max(
        config.rollout.tasks_per_update * config.rollout.group_size, validation_batch(config.evaluation.games)
    )
    computing = ("float32" if cpu else "bfloat16") if policy.precision == "auto" else policy.precision
    found: Settings = {
        f"{_MODEL}.use_remove_padding": not cpu,
        f"{_MODEL}.enable_gradient_checkpointing": not cpu,
        f"{_ACTOR}.use_torch_compile": not cpu,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": max(training.micro_batch_tokens, tokens),
        f"{_ROLLOUT}.dtype": computing,
        f"{_ROLLOUT}.gpu_memory_utilization": 0.6,
        f"{_ROLLOUT}.max_model_len": _context(policy, verl),  # by default, vLLM reserves memory for the longest context
        f"{_ROLLOUT}.max_num_batched_tokens": max(8192, tokens),
        "reward.num_workers": 0,  # rewards come from the environments
        # Twice the most steps of an update or a validation batch. A critic and batches ahead have rows of their own.
        STORED_ROWS: (2 + critic + batches_ahead(verl)) * episodes * config.environment.max_steps + 1000,
        # Each storage unit takes a CPU.
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": verl.nodes * (1 + (verl.gpus_per_node >= 4)),
    }
    for part in ("actor", "ref"):
        engine = f"actor_rollout_ref.{part}.fsdp_config"
        found[f"{engine}.use_torch_compile"] = not cpu
        # FSDP ignores `dtype` and computes in this type; its default is bfloat16.
        found[f"{engine}.mixed_precision.param_dtype"] = computing
        found[f"{engine}.mixed_precision.reduce_dtype"] = found[f"{engine}.mixed_precision.buffer_dtype"] = "float32"
        # Forward passes cast the reference anyway; stored in bfloat16, it is copied to the GPU with half the bytes.
        found[f"{engine}.model_dtype"] = "bf16" if part == "ref" and computing == "bfloat16" else "fp32"
    if cpu or computing == "float32":  # FlashAttention has neither
        found[f"{_MODEL}.override_config.attn_implementation"] = "sdpa"
    if policy.lora.rank:
        # Checkpoints contain only the adapter. The rollout engine loads the base model once; updates send adapters.
        found |= {f"{_ACTOR}.checkpoint.save_lora_only": True, f"{_ROLLOUT}.load_format": "safetensors"}
    if vllm_on_cpu(policy, verl):
        found |= _VLLM_ON_CPU
    if critic:
        found |= {f"critic.model.{name}": f"${{{_MODEL}.{name}}}" for name in _OF_CRITICS_MODEL}
        found |= {f"critic.fsdp.{name}": f"${{{_ACTOR}.fsdp_config.{name}}}" for name in _OF_CRITICS_ENGINE}
        for name in ("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu"):  # verl reads the second one
            found[f"critic.{name}"] = f"${{{_ACTOR}.ppo_max_token_len_per_gpu}}"
    return found if verl.ray_cpus is None else {**found, "ray_kwargs.ray_init.num_cpus": verl.ray_cpus}


def validation_batch(games: int | None) -> int:
    """Concurrent episodes of an evaluation; `games` is `evaluation.games`."""
    return min(_EPISODES_PER_VALIDATION_BATCH, games or _EPISODES_PER_VALIDATION_BATCH)


def is_asynchronous(verl: VerlSettings) -> bool:
    """Whether a step may be sampled by an older policy than the one that is updated."""
    return verl.mode != "sync"


def batches_ahead(verl: VerlSettings) -> int:
    """Number of later batches whose rollouts have begun when an update takes its batch."""
    if not is_asynchronous(verl):
        return 0
    given: float = dict(dotted_values(verl.overrides)).get(f"trainer.v1.{verl.mode}.num_warmup_batches", 1)
    return ceil(given)
