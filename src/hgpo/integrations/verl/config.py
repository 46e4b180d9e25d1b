"""From a recipe's settings to verl's, as plain dictionaries. Does not import verl.

`mapped_settings` follow from the recipe's own tables, and `[verl.overrides]` cannot repeat them under verl's names.
`suggested_settings` concern speed and memory; `[verl.overrides]` may replace them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hgpo.config import VLLM_ON_CPU, Config, ConfigError, Loss, LossAggregation, TrainingSettings
from hgpo.config.settings import (
    EnvironmentSettings,
    EvaluationSettings,
    LoraSettings,
    PolicySettings,
    RolloutSettings,
    VerlSettings,
)
from hgpo.envs.registry import SUITES
from hgpo.runs.folder import read_json
from hgpo.runs.trackers import tracker_names

Tree = dict[str, Any]

CHECKPOINTS_VARIABLE = "CHECKPOINTS_DIR"
LOCATION_FILE = "verl.json"
TRAINER_MODE = "hgpo"
AGENT_LOOP = "hgpo"
CPU_ROLLOUT = "hgpo_transformers"
OWN_LOSS = "hgpo_"  # prefix of verl's name of a loss: the same loss with metrics per token (`engine`)
LOSSES: dict[Loss, str] = {"ppo": f"{OWN_LOSS}vanilla", "gspo": f"{OWN_LOSS}gspo", "cispo": f"{OWN_LOSS}cispo"}
_AGGREGATIONS: dict[LossAggregation, str] = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
_STRATEGY = "fsdp2"  # published checkpoints need it, and on a CPU verl has no other
_NO_DUAL_CLIP = 1e9  # verl cannot switch the clip off; this bound is never reached
_NO_EPOCH_LIMIT = 10**9
_EPISODES_PER_VALIDATION_BATCH = 256
_VLLM_ON_CPU: Tree = {
    "enforce_eager": True,
    "free_cache_engine": False,  # its worker has no memory to release, and so does not sleep
    "engine_kwargs": {
        "vllm": {
            "enable_sleep_mode": False,
            "kv_cache_memory_bytes": 2**30,
            "worker_extension_cls": "hgpo.integrations.verl.cpu.vllm.CpuWorkerExtension",
        }
    },
}
_DEVICES = ("auto", "cuda", "cpu")


def check_for_verl(config: Config) -> None:
    """Reject, with a remedy, what this engine cannot do.

    Raises:
        ConfigError: names the setting.
    """
    _check_environment(config.environment.name)
    _check_policy(config.policy, config.verl, warm_start=config.warm_start.enabled)
    _check_ranks(config.training, config.verl)
    if config.training.updates == 0 and not config.verl.evaluate_only:
        raise ConfigError("training.updates = 0: to evaluate without training, set verl.evaluate_only = true")


def _check_environment(name: str) -> None:
    if ":" not in name and not entry_points(group=SUITES.group, name=name):
        raise ConfigError(
            f"environment.name = {name!r} is registered only in this process, and environments run in others: name "
            "it 'package.module:factory', or give its package an entry point (docs/environments.md)"
        )


def _check_policy(policy: PolicySettings, verl: VerlSettings, *, warm_start: bool) -> None:
    if policy.device not in _DEVICES:
        raise ConfigError(
            f"policy.device = {policy.device!r}: verl gives each training process its own GPU and accepts "
            f"{' or '.join(map(repr, _DEVICES))}; CUDA_VISIBLE_DEVICES selects the GPUs"
        )
    if verl.rollout == VLLM_ON_CPU and not on_cpu(policy):
        raise ConfigError(f"verl.rollout = {VLLM_ON_CPU!r} runs only on CPUs: set policy.device = cpu, or vllm")
    if vllm_on_cpu(policy, verl) and policy.lora.rank:
        raise ConfigError(
            f"policy.lora.rank = {policy.lora.rank}: verl 0.9 passes adapters to functions of vLLM 0.24, which has no "
            f"build for CPUs that PyPI's PyTorch fits; leave verl.rollout = {VLLM_ON_CPU!r} out"
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
    if ranks % verl.tensor_parallel:
        raise ConfigError(
            f"verl.tensor_parallel = {verl.tensor_parallel} does not divide the {ranks} GPUs "
            "(verl.nodes * verl.gpus_per_node)"
        )


def on_cpu(policy: PolicySettings) -> bool:
    """Whether training processes run on CPUs."""
    return policy.device == "cpu"


def vllm_on_cpu(policy: PolicySettings, verl: VerlSettings) -> bool:
    """Whether vLLM's build for CPUs samples."""
    return on_cpu(policy) and verl.rollout == VLLM_ON_CPU


def checkpoint_folder(name: str, run_directory: Path) -> Path:
    """verl's folder of sharded checkpoints: `$CHECKPOINTS_DIR/<run.name>` if the variable is set, else in the run.

    A started run reads the folder from `LOCATION_FILE`, so that the variable may change before it is resumed.
    """
    stored = run_directory / LOCATION_FILE
    if stored.exists():
        return Path(str(read_json(stored).get("checkpoints", run_directory / "verl")))
    base = os.environ.get(CHECKPOINTS_VARIABLE)
    return Path(base).resolve() / name if base else run_directory / "verl"


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every value in nested tables. An empty table is a value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# ---- settings that follow from the recipe --------------------------------------------------------------------------


def mapped_settings(config: Config, model: str, run_directory: Path) -> Tree:
    """verl's settings that follow from the recipe, nested as verl nests them.

    Args:
        config: the recipe.
        model: folder or hub name of the start policy.
        run_directory: the run's folder.
    """
    training, policy, seed = config.training, config.policy, config.run.seed
    recomputes = config.recomputes_log_probs
    return {
        "data": _data(policy, config.rollout.tasks_per_update, seed),
        "actor_rollout_ref": {
            "model": {"path": model, **_lora(policy.lora)},
            "actor": {
                **_actor(training, config.rollout, seed),
                **_loss(training, policy.max_response_tokens, recomputes_log_probs=recomputes),
            },
            "ref": {"strategy": _STRATEGY},
            "rollout": {
                **_rollout(config.rollout, config.evaluation.temperature, seed),
                **_rollout_engine(policy, config.verl),
            },
        },
        "algorithm": {
            "adv_estimator": "grpo",  # never called, the trainer computes advantages itself; it means: no critic
            "gamma": config.advantage.gamma,
            "use_kl_in_reward": False,
            "rollout_correction": _rollout_correction(training.importance_cap, recomputes_log_probs=recomputes),
            "filter_groups": {"enable": False},
        },
        "trainer": {
            **_schedule(training, config.evaluation.every),
            **_machines(policy, config.verl),
            "use_v1": True,
            "v1": {"trainer_mode": TRAINER_MODE},
            "val_before_train": True,
            "resume_mode": "auto",
            "default_local_dir": str(checkpoint_folder(config.run.name, run_directory)),
            "project_name": "hgpo",
            "experiment_name": config.run.name,
            "logger": ["console", *tracker_names(config.tracking, config.run.engine)],
        },
    }


def _data(policy: PolicySettings, tasks_per_update: int, seed: int) -> Tree:
    return {
        "train_files": "hgpo",
        "val_files": "hgpo",
        "custom_cls": {"path": "pkg://hgpo.integrations.verl.agent_loop", "name": "TaskRows"},
        "train_batch_size": tasks_per_update,
        "max_prompt_length": policy.max_prompt_tokens,
        "max_response_length": policy.max_response_tokens,
        "dataloader_num_workers": 0,
        "shuffle": False,
        "seed": seed,
    }


def _lora(lora: LoraSettings) -> Tree:
    """The model's adapter; empty where all weights are trained."""
    if not lora.rank:
        return {}
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    return {"lora_rank": lora.rank, "lora_alpha": int(lora.effective_alpha), "target_modules": targets}


def _actor(training: TrainingSettings, rollout: RolloutSettings, seed: int) -> Tree:
    """Mini-batches, optimiser and checkpoints of the actor."""
    # verl counts its mini-batches in tasks and checks them; the trainer cuts mini-batches by steps (`trainer.cut`).
    tasks = min(rollout.tasks_per_update, max(1, training.mini_batch_size // rollout.group_size))
    return {
        "strategy": _STRATEGY,
        "ppo_mini_batch_size": tasks,
        "ppo_epochs": training.epochs,
        "use_dynamic_bsz": True,
        "shuffle": True,
        "data_loader_seed": seed,
        "grad_clip": training.max_gradient_norm,
        "optim": {
            "lr": training.learning_rate,
            "weight_decay": training.weight_decay,
            "lr_scheduler_type": training.learning_rate_schedule,
            "lr_warmup_steps": training.warmup_updates,
        },
        "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
    }


def _loss(training: TrainingSettings, max_response_tokens: int, *, recomputes_log_probs: bool) -> Tree:
    return {
        "clip_ratio": training.clip_low,
        "clip_ratio_low": training.clip_low,
        "clip_ratio_high": training.clip_high,
        "clip_ratio_c": training.dual_clip or _NO_DUAL_CLIP,
        "policy_loss": {"loss_mode": LOSSES[training.loss]},
        "loss_agg_mode": _AGGREGATIONS[training.loss_aggregation],
        "loss_scale_factor": max_response_tokens,  # used only by the "constant" aggregation
        "calculate_entropy": update_needs_entropy(training, recomputes_log_probs=recomputes_log_probs),
        "entropy_coeff": training.entropy_coefficient,
        "use_kl_loss": training.kl_coefficient > 0,
        "kl_loss_coef": training.kl_coefficient,
        "kl_loss_type": "low_var_kl",
    }


def update_needs_entropy(training: TrainingSettings, *, recomputes_log_probs: bool) -> bool:
    """Whether the update computes the entropy, whose gradient needs as much memory as the logits.

    If it is not part of the loss and old log-probs are recomputed, that pass reports it.
    """
    return training.entropy_coefficient > 0 or not recomputes_log_probs


def _rollout_correction(cap: float | None, *, recomputes_log_probs: bool) -> Tree:
    """Truncated importance sampling per token, as in `hgpo.training.losses`; without a cap, verl's may be set."""
    if not recomputes_log_probs:
        return {"bypass_mode": True}
    weighted: Tree = {} if cap is None else {"rollout_is": "token", "rollout_is_threshold": cap}
    return {"bypass_mode": False, **weighted}


def _rollout(rollout: RolloutSettings, evaluation_temperature: float, seed: int) -> Tree:
    return {
        "mode": "async",
        "n": rollout.group_size,
        "temperature": rollout.temperature,
        "top_k": -1,
        "top_p": 1.0,
        "seed": seed,
        "calculate_log_probs": True,
        "val_kwargs": {
            "n": 1,
            "temperature": evaluation_temperature,
            "do_sample": evaluation_temperature > 0,
            "top_k": -1,
            "top_p": 1.0,
        },
    }


def _rollout_engine(policy: PolicySettings, verl: VerlSettings) -> Tree:
    name = CPU_ROLLOUT if on_cpu(policy) else verl.rollout
    return {
        "name": "vllm" if vllm_on_cpu(policy, verl) else name,
        "tensor_model_parallel_size": verl.tensor_parallel,
        "agent": {"num_workers": verl.agent_workers, "default_agent_loop": AGENT_LOOP},
    }


def _schedule(training: TrainingSettings, evaluate_every: int) -> Tree:
    return {
        "total_training_steps": max(1, training.updates),
        "total_epochs": _NO_EPOCH_LIMIT,
        "test_freq": evaluate_every or max(1, training.updates),
        "save_freq": training.checkpoint_every,
        "max_actor_ckpt_to_keep": None,  # the trainer deletes old ones, after the new one is complete and published
    }


def _machines(policy: PolicySettings, verl: VerlSettings) -> Tree:
    return {
        "device": "cpu" if on_cpu(policy) else "cuda",
        "nnodes": verl.nodes,
        "n_gpus_per_node": verl.gpus_per_node,
        "val_only": verl.evaluate_only,
    }


# ---- settings of speed and memory ----------------------------------------------------------------------------------


def suggested_settings(config: Config) -> Tree:
    """verl's settings of speed and memory; a recipe may override them."""
    policy, training, verl = config.policy, config.training, config.verl
    cpu, tokens = on_cpu(policy), policy.max_prompt_tokens + policy.max_response_tokens
    computing = computing_precision(policy.precision, cpu=cpu)
    # FSDP reads mixed_precision and not `dtype`; without it, it computes in bfloat16 whatever `dtype` is.
    precision = {"param_dtype": computing, "reduce_dtype": "float32", "buffer_dtype": "float32"}
    engine = {"model_dtype": "fp32", "mixed_precision": precision, "use_torch_compile": not cpu}
    # Forward passes cast the reference anyway, and in bfloat16 half as many bytes are copied to the GPU.
    reference = {**engine, "model_dtype": "bf16" if computing == "bfloat16" else "fp32"}
    # Saved checkpoints leave out the frozen weights, which are those of the start policy.
    adapters: Tree = {"checkpoint": {"save_lora_only": True}} if policy.lora.rank else {}
    return {
        "actor_rollout_ref": {
            "model": {
                "use_remove_padding": not cpu,
                "enable_gradient_checkpointing": not cpu,
                **({"override_config": {"attn_implementation": "sdpa"}} if cpu else {}),
            },
            "actor": {
                "use_torch_compile": not cpu,
                "ppo_max_token_len_per_gpu": max(training.micro_batch_tokens, tokens),
                "fsdp_config": dict(engine),
                **adapters,
            },
            "ref": {"fsdp_config": reference},
            "rollout": {"dtype": computing, **_rollout_memory(policy, verl)},
        },
        "critic": {"enable": False},
        "reward": {"num_workers": 0},  # rewards come from the environments
        "transfer_queue": {
            "backend": {
                "SimpleStorage": {
                    "total_storage_size": stored_rows(config.rollout, config.evaluation, config.environment),
                    "num_data_storage_units": storage_units(verl.nodes, verl.gpus_per_node),
                }
            }
        },
        "ray_kwargs": {"ray_init": {} if verl.ray_cpus is None else {"num_cpus": verl.ray_cpus}},
    }


def computing_precision(precision: str, *, cpu: bool) -> str:
    """`bfloat16` or `float32`, of forward passes; weights are kept in float32."""
    return ("float32" if cpu else "bfloat16") if precision == "auto" else precision


def _rollout_memory(policy: PolicySettings, verl: VerlSettings) -> Tree:
    tokens = policy.max_prompt_tokens + policy.max_response_tokens
    return {
        "gpu_memory_utilization": 0.6,
        "max_model_len": tokens,  # else vLLM reserves memory for the longest text that the model can read
        "max_num_batched_tokens": max(8192, tokens),
        # Load the base model once; updates then send only adapters.
        **({"load_format": "safetensors"} if policy.lora.rank else {}),
        **(_VLLM_ON_CPU if vllm_on_cpu(policy, verl) else {}),
    }


def storage_units(nodes: int, gpus_per_node: int) -> int:
    """Storage units of TransferQueue: one a node, two from 4 GPUs a node. Few, since each takes a CPU."""
    return nodes * (1 if gpus_per_node < 4 else 2)


def validation_batch(games: int | None) -> int:
    """Concurrent episodes of an evaluation; `games` is `evaluation.games`."""
    return min(_EPISODES_PER_VALIDATION_BATCH, games or _EPISODES_PER_VALIDATION_BATCH)


def stored_rows(rollout: RolloutSettings, evaluation: EvaluationSettings, environment: EnvironmentSettings) -> int:
    """Rows of the queue: twice the most steps of an update, or of a validation batch."""
    episodes = rollout.tasks_per_update * rollout.group_size
    return 2 * max(episodes, validation_batch(evaluation.games)) * environment.max_steps + 1000
