"""From this project's typed settings to verl's, as plain dictionaries. No verl is needed here.

`mapped_settings` are what the recipe says in this project's own words; a recipe cannot say them a second time under
verl's names. `suggested_settings` are choices about speed and memory that `[verl.overrides]` may replace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hgpo.config import VLLM_ON_CPU, Config, ConfigError
from hgpo.envs.registry import SUITES
from hgpo.integrations.verl.verl_owned_settings import STRATEGY, Tree, actor, algorithm, lora
from hgpo.runs.folder import read_json
from hgpo.runs.trackers import tracker_names

CHECKPOINTS_VARIABLE = "CHECKPOINTS_DIR"
LOCATION_FILE = "verl.json"
TRAINER_MODE = "hgpo"
AGENT_LOOP = "hgpo"
CPU_ROLLOUT = "hgpo_transformers"
_VLLM_ON_CPU: Tree = {
    "enforce_eager": True,
    "free_cache_engine": False,  # its worker has no memory to give back, and so does not sleep
    "engine_kwargs": {
        "vllm": {
            "enable_sleep_mode": False,
            "kv_cache_memory_bytes": 2**30,
            "worker_extension_cls": "hgpo.integrations.verl.cpu.vllm.CpuWorkerExtension",
        }
    },
}
_DEVICES = ("auto", "cuda", "cpu")
_ENDLESS = 10**9
_EPISODES_PER_VALIDATION_BATCH = 256


def check_for_verl(config: Config) -> None:
    """Refuse, with the remedy, what this engine cannot do.

    Raises:
        ConfigError: names the setting.
    """
    ranks = ranks_of(config)
    training = config.training
    name = config.environment.name
    if ":" not in name and not entry_points(group=SUITES.group, name=name):
        raise ConfigError(
            f"environment.name = {name!r} was registered in this process alone, and environments live in others: name "
            "it 'package.module:factory', or give its package an entry point (docs/environments.md)"
        )
    if config.policy.device not in _DEVICES:
        raise ConfigError(
            f"policy.device = {config.policy.device!r}: verl gives each training process a GPU of its own, and takes "
            f"{' or '.join(map(repr, _DEVICES))}; which GPUs there are is said by CUDA_VISIBLE_DEVICES"
        )
    if config.verl.rollout == VLLM_ON_CPU and not on_cpu(config):
        raise ConfigError(f"verl.rollout = {VLLM_ON_CPU!r} answers on CPUs alone: set policy.device = cpu, or vllm")
    policy = config.policy
    if vllm_on_cpu(config) and policy.lora.rank:
        raise ConfigError(
            f"policy.lora.rank = {policy.lora.rank}: verl 0.9 hands adapters to functions of vLLM 0.24, which has no "
            f"build for CPUs that PyPI's PyTorch fits; leave verl.rollout = {VLLM_ON_CPU!r} out"
        )
    if not config.warm_start.enabled and (policy.revision is not None or policy.model.lower().endswith(".gguf")):
        raise ConfigError(
            f"policy.model = {policy.model!r}, policy.revision = {policy.revision!r}: verl loads folders and the main "
            "branch of hub names alone; download the model into a folder, and name that"
        )
    if training.mini_batch_size % ranks:
        raise ConfigError(
            f"training.mini_batch_size = {training.mini_batch_size} cannot be divided among {ranks} training processes "
            f"(verl.nodes * verl.gpus_per_node); take a multiple of {ranks}"
        )
    if ranks % config.verl.tensor_parallel:
        raise ConfigError(
            f"verl.tensor_parallel = {config.verl.tensor_parallel} does not divide the {ranks} GPUs "
            "(verl.nodes * verl.gpus_per_node)"
        )
    if policy.lora.alpha is not None and not policy.lora.alpha.is_integer():
        raise ConfigError(f"policy.lora.alpha = {policy.lora.alpha}: verl takes whole numbers alone")
    if training.updates == 0 and not config.verl.evaluate_only:
        raise ConfigError("training.updates = 0: to evaluate alone, set verl.evaluate_only = true")


def ranks_of(config: Config) -> int:
    """Training processes in all."""
    return config.verl.nodes * config.verl.gpus_per_node


def on_cpu(config: Config) -> bool:
    """Whether training processes run on CPUs."""
    return config.policy.device == "cpu"


def checkpoint_folder(config: Config, run_directory: Path) -> Path:
    """Where verl keeps its sharded checkpoints: `$CHECKPOINTS_DIR/<run.name>` if set, else in the run.

    A run that has begun remembers the place in `LOCATION_FILE`, whatever the variable says when it is continued.
    """
    remembered = run_directory / LOCATION_FILE
    if remembered.exists():
        return Path(str(read_json(remembered).get("checkpoints", run_directory / "verl")))
    base = os.environ.get(CHECKPOINTS_VARIABLE)
    return Path(base).resolve() / config.run.name if base else run_directory / "verl"


def mapped_settings(config: Config, model: str, run_directory: Path) -> Tree:
    """verl's settings that follow from the recipe, nested as verl nests them.

    Args:
        config: the recipe.
        model: folder or hub name of the start policy.
        run_directory: where the run writes.
    """
    return {
        "data": _data(config),
        "actor_rollout_ref": {
            "model": {"path": model, **lora(config)},
            "actor": actor(config),
            "ref": {"strategy": STRATEGY},
            "rollout": _rollout(config),
        },
        "algorithm": algorithm(config),
        "trainer": _trainer(config, run_directory),
    }


def suggested_settings(config: Config) -> Tree:
    """verl's settings that bear on speed and memory alone; a recipe may override them."""
    tokens = config.policy.max_prompt_tokens + config.policy.max_response_tokens
    cpu, adapters = on_cpu(config), config.policy.lora.rank > 0
    # FSDP reads mixed_precision and not `dtype`; left out, it computes in bfloat16 whatever `dtype` says.
    precision = {"param_dtype": arithmetic(config), "reduce_dtype": "float32", "buffer_dtype": "float32"}
    engine = {"model_dtype": "fp32", "mixed_precision": precision, "use_torch_compile": not cpu}
    # Of the reference, the policy of the start: forward passes cast it anyway, and half as much crosses to the GPU.
    reference = {**engine, "model_dtype": "bf16" if arithmetic(config) == "bfloat16" else "fp32"}
    ray_init: Tree = {} if config.verl.ray_cpus is None else {"num_cpus": config.verl.ray_cpus}
    return {
        "actor_rollout_ref": {
            "model": {
                "use_remove_padding": not cpu,
                "enable_gradient_checkpointing": not cpu,
                **({"override_config": {"attn_implementation": "sdpa"}} if cpu else {}),
            },
            "actor": {
                "use_torch_compile": not cpu,
                "ppo_max_token_len_per_gpu": max(config.training.micro_batch_tokens, tokens),
                "fsdp_config": dict(engine),
                # The frozen weights are those that the run began with, and need not be saved each time.
                **({"checkpoint": {"save_lora_only": True}} if adapters else {}),
            },
            "ref": {"fsdp_config": reference},
            "rollout": {
                "gpu_memory_utilization": 0.6,
                "max_model_len": tokens,  # else vLLM makes room for the longest text that the model could read
                "max_num_batched_tokens": max(8192, tokens),
                "dtype": arithmetic(config),
                **({"load_format": "safetensors"} if adapters else {}),  # once; then it is sent adapters alone
                **(_VLLM_ON_CPU if vllm_on_cpu(config) else {}),
            },
        },
        "critic": {"enable": False},
        "reward": {"num_workers": 0},  # rewards come from the environments
        "transfer_queue": {
            "backend": {
                "SimpleStorage": {
                    "total_storage_size": stored_rows(config),
                    "num_data_storage_units": storage_units(config.verl.nodes, config.verl.gpus_per_node),
                }
            }
        },
        "ray_kwargs": {"ray_init": ray_init},
    }


def storage_units(nodes: int, gpus_per_node: int) -> int:
    """Units of TransferQueue: one a node, two from 4 training processes a node on. Few, since each takes a CPU."""
    return nodes * (1 if gpus_per_node < 4 else 2)


def arithmetic(config: Config) -> str:
    """`bfloat16` or `float32`: what forward passes are computed in; weights are kept in float32."""
    precision = config.policy.precision
    return ("float32" if on_cpu(config) else "bfloat16") if precision == "auto" else precision


def validation_batch(config: Config) -> int:
    """Episodes of an evaluation that are played side by side."""
    return min(_EPISODES_PER_VALIDATION_BATCH, config.evaluation.games or _EPISODES_PER_VALIDATION_BATCH)


def stored_rows(config: Config) -> int:
    """The most steps that lie in the queue at a time, twice over: an update's with groups drawn anew, or a panel's."""
    rollout = config.rollout
    drawn = rollout.tasks_per_update * rollout.group_size * (1 + rollout.resample_uniform_groups)
    return 2 * max(drawn, validation_batch(config)) * config.environment.max_steps + 1000


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything that is set. An empty table is a value."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _data(config: Config) -> Tree:
    return {
        "train_files": "hgpo",
        "val_files": "hgpo",
        "custom_cls": {"path": "pkg://hgpo.integrations.verl.agent_loop", "name": "TaskRows"},
        "train_batch_size": config.rollout.tasks_per_update,
        "max_prompt_length": config.policy.max_prompt_tokens,
        "max_response_length": config.policy.max_response_tokens,
        "dataloader_num_workers": 0,
        "shuffle": False,
        "seed": config.run.seed,
    }


def vllm_on_cpu(config: Config) -> bool:
    """Whether vLLM's build for CPUs answers."""
    return on_cpu(config) and config.verl.rollout == VLLM_ON_CPU


def _rollout_name(config: Config) -> str:
    if vllm_on_cpu(config):
        return "vllm"
    return CPU_ROLLOUT if on_cpu(config) else config.verl.rollout


def _rollout(config: Config) -> Tree:
    evaluation = config.evaluation
    return {
        "name": _rollout_name(config),
        "mode": "async",
        "n": config.rollout.group_size,
        "temperature": config.rollout.temperature,
        "top_k": -1,
        "top_p": 1.0,
        "seed": config.run.seed,
        "calculate_log_probs": True,
        "tensor_model_parallel_size": config.verl.tensor_parallel,
        "val_kwargs": {
            "n": 1,
            "temperature": evaluation.temperature,
            "do_sample": evaluation.temperature > 0,
            "top_k": -1,
            "top_p": 1.0,
        },
        "agent": {"num_workers": config.verl.agent_workers, "default_agent_loop": AGENT_LOOP},
    }


def _trainer(config: Config, run_directory: Path) -> Tree:
    settings = config.training
    return {
        "use_v1": True,
        "v1": {"trainer_mode": TRAINER_MODE},
        "device": "cpu" if on_cpu(config) else "cuda",
        "nnodes": config.verl.nodes,
        "n_gpus_per_node": config.verl.gpus_per_node,
        "total_training_steps": max(1, settings.updates),
        "total_epochs": _ENDLESS,
        "val_before_train": True,
        "val_only": config.verl.evaluate_only,
        "test_freq": config.evaluation.every or max(1, settings.updates),
        "save_freq": settings.checkpoint_every,
        "max_actor_ckpt_to_keep": None,  # the trainer deletes old ones, once the new one is named and published
        "resume_mode": "auto",
        "default_local_dir": str(checkpoint_folder(config, run_directory)),
        "project_name": "hgpo",
        "experiment_name": config.run.name,
        "logger": ["console", *tracker_names(config.tracking, config.run.engine)],
    }
