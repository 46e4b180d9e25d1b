"""Estimates for a training on verl: memory of a GPU and of the host, GPU hours, disk.

Arithmetic on the sizes of the model and on verl's composed configuration; nothing was measured on a GPU. verl 0.9.1
with FSDP2 shards weights, gradients and AdamW's moments over all ranks and gathers layers in the computing precision
one by one; the reference is offloaded to the host. Does not import verl.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hgpo.config import Config
from hgpo.config.settings import PolicySettings
from hgpo.runs.metrics import GIB

if TYPE_CHECKING:
    from hgpo.training.run_plan import ModelSummary

_CONTEXTS = 2 * GIB  # CUDA contexts and libraries of the training process and of vLLM; a guess
_ASLEEP = 4 * GIB  # CUDA graphs and buffers that vLLM keeps while the policy is updated; a guess
_FUSED_CHUNK, _FUSED_LOGIT = 512, 22  # with fused kernels: tokens at a time, bytes per logit
_LOGIT = 4  # without them: factor of a number's bytes
_PROMPT_SHARE = 2  # only responses have logits; prompts are assumed to have half their longest length
# Published: 282 to 298 s per update. Assumed: 1.5B on ALFWorld, on two GPUs; the kind of GPU is not known.
_PUBLISHED_SECONDS, _PUBLISHED_GPUS, _PUBLISHED_PARAMETERS, _PUBLISHED_STEPS = 290, 2, 1_543_714_304, 16 * 8 * 50
_HOURS_FROM = "from 290 s per update, published for 1.5B on two GPUs, in proportion to parameters and steps"
_TOKEN = 2 * 32  # bytes of a token in the queue and in the trainer; the trainer's were measured (docs/verl.md)
_RANK_PROCESSES, _AGENT_WORKER = 6 * GIB, GIB  # host memory of a rank with vLLM and of an agent worker; guesses
_MORE_HOST_MEMORY = (
    "memory may not suffice; reduce it with param_offload=false and optimizer_offload=false, "
    "training.kl_coefficient=0 (no reference), more verl.nodes, or fewer verl.agent_workers"
)
_MORE_MEMORY = (
    "memory may not suffice; reduce it with a smaller training.micro_batch_tokens, policy.lora.rank=32, a smaller "
    "verl.overrides.actor_rollout_ref.rollout.gpu_memory_utilization, or offloading (docs/verl.md)"
)

VerlConfig = Mapping[str, Any]
"""verl's composed configuration."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `remedy` is empty if nothing has to change. A `fatal` finding stops the run."""

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f": {self.remedy}" if self.remedy else "")


def memory_findings(policy: PolicySettings, verl_config: VerlConfig, gpu: int, host: int | None) -> list[Finding]:
    """The estimates for a GPU and for a host, if known, of so many bytes; with a remedy if too small; never fatal."""
    from hgpo.training.run_plan import memory_needed, summarise_model  # loads PyTorch

    model = summarise_model(policy)
    needs = [("GPU memory", estimate_gpu_memory(model, verl_config, gpu), gpu, _MORE_MEMORY)]
    if host:
        needs.append(("host memory", {"a node": estimate_host_memory(model, verl_config)}, host, _MORE_HOST_MEMORY))
    found = []
    for what, phases, size, remedy in needs:
        needed, text = memory_needed(phases, size / GIB)
        found.append(Finding(what, text, remedy if needed * GIB > size else ""))
    return found


def estimate_gpu_memory(model: ModelSummary, verl_config: VerlConfig, gpu: int) -> dict[str, dict[str, float]]:
    """GiB by phase and by part. Phases follow each other, so the largest one decides.

    `gpu` is the bytes of the GPU; vLLM takes a share of them.
    """
    part, trainer = verl_config["actor_rollout_ref"], verl_config["trainer"]
    settings, engine, rollout = part["model"], part["actor"]["fsdp_config"], part["rollout"]
    ranks = trainer["nnodes"] * trainer["n_gpus_per_node"]
    number = _bytes_of((engine["mixed_precision"] or {}).get("param_dtype", "bf16"))
    adapters = model.adapter_parameters(settings["lora_rank"])
    weights, gradients = _weights_and_gradients(model, adapters, engine, ranks)
    # verl balances the work of micro-batches, so one may exceed the bound by one sequence.
    tokens = part["actor"]["ppo_max_token_len_per_gpu"] + rollout["max_model_len"]
    response = rollout["response_length"]
    scored = tokens * response // (response + (rollout["max_model_len"] - response) // _PROMPT_SHARE)
    logits = _FUSED_CHUNK * _FUSED_LOGIT if settings["use_fused_kernels"] else scored * _LOGIT * number
    embeddings = 2 * model.vocabulary * model.hidden_size
    gathered = embeddings + 2 * (model.parameters - embeddings) // model.layers
    resting, moments = _resting(weights, gradients, engine)
    critic = {}
    if verl_config["critic"]["enable"]:  # it has the policy's size, and is idle while the policy is updated
        of_critic = verl_config["critic"]["fsdp"]
        critic = {"critic": sum(_resting(*_weights_and_gradients(model, adapters, of_critic, ranks), of_critic))}
    phases = {
        "the updates": {
            "contexts": _CONTEXTS,
            "weights": weights,
            "optimiser": gradients + moments,
            "gathered layers": gathered * (number if adapters else 2 * number + 4),
            "activations": model.activation_bytes(tokens, number, settings["enable_gradient_checkpointing"], number),
            "logits": logits * model.vocabulary,
            "vLLM asleep": _ASLEEP,
            **critic,
        },
        "sampling": {
            "contexts": _CONTEXTS,
            "weights and optimiser": resting + moments,
            "vLLM": int(rollout["gpu_memory_utilization"] * gpu),
            **critic,
        },
    }
    return {name: {part: size / GIB for part, size in parts.items()} for name, parts in phases.items()}


def estimate_host_memory(model: ModelSummary, verl_config: VerlConfig) -> dict[str, float]:
    """GiB of a node by part, while the policy is updated; loading a model takes 4 bytes per parameter for a moment.

    Offloaded weights take 4 bytes per parameter and offloaded moments 8, divided by the nodes. The reference is always
    offloaded, in its own type. With LoRA, only the adapter has moments, the policy's base model is the reference, and
    each sleeping vLLM keeps the model in host memory.
    """
    part, trainer = verl_config["actor_rollout_ref"], verl_config["trainer"]
    actor, rollout, gpus = part["actor"], part["rollout"], trainer["n_gpus_per_node"]
    rank = part["model"]["lora_rank"]
    trained = model.adapter_parameters(rank) or model.parameters
    engines = [actor["fsdp_config"]] + [verl_config["critic"]["fsdp"]] * verl_config["critic"]["enable"]
    offloaded = 0
    for engine in engines:
        offloaded += 4 * model.parameters * (engine["offload_policy"] or engine["param_offload"])
        offloaded += 8 * trained * (engine["offload_policy"] or engine["optimizer_offload"])
    reference = 0 if rank or not actor["use_kl_loss"] else _bytes_of(part["ref"]["fsdp_config"]["model_dtype"])
    asleep = 2 * model.parameters * gpus // rollout["tensor_model_parallel_size"] if rank else 0
    rows = verl_config["transfer_queue"]["backend"]["SimpleStorage"]["total_storage_size"] // 2
    sizes = {
        "offloaded weights and moments": offloaded / trainer["nnodes"],
        "reference": reference * model.parameters / trainer["nnodes"],
        "vLLM asleep": asleep,
        "rollouts": rows * rollout["max_model_len"] * _TOKEN,
        "processes": gpus * _RANK_PROCESSES + rollout["agent"]["num_workers"] * _AGENT_WORKER,
    }
    return {name: size / GIB for name, size in sizes.items()}


def cost_findings(config: Config) -> list[Finding]:
    """Estimates of GPU hours and disk for a whole training; a fatal finding if the model cannot be read."""
    from hgpo.training.run_plan import summarise_model  # loads PyTorch

    try:
        model = summarise_model(config.policy)
    except (OSError, ValueError) as error:
        return [Finding("model", str(error), "check policy.model", fatal=True)]
    training, rollout = config.training, config.rollout
    steps = training.updates * rollout.tasks_per_update * rollout.group_size * config.environment.max_steps
    disk = estimate_disk(model, training.keep_checkpoints, config.policy.lora.rank, critic=config.needs_critic)
    path = config.run_directory.resolve()
    free = shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free
    remedy = "lower training.keep_checkpoints, or choose another run.directory" if disk > free else ""
    hours = f"about {estimate_gpu_hours(model, steps):.0f}, without evaluations: {_HOURS_FROM}"
    held = f"about {disk / 10**9:.0f} GB of checkpoints; {free / 10**9:.0f} GB free"
    found = [] if config.policy.device == "cpu" else [Finding("GPU hours (estimate)", hours)]
    return [*found, Finding("disk (estimate)", held, remedy)]


def estimate_gpu_hours(model: ModelSummary, steps: int) -> float:
    """Hours times GPUs of updates with `steps` steps in all: the published time, scaled by parameters and steps."""
    published = _PUBLISHED_SECONDS * _PUBLISHED_GPUS / _PUBLISHED_PARAMETERS / _PUBLISHED_STEPS
    return published * model.parameters * steps / 3600


def estimate_disk(model: ModelSummary, keep_checkpoints: int, lora_rank: int, *, critic: bool) -> int:
    """Bytes of the kept checkpoints and of one being written: weights, two moments, and the weights for transformers.

    With LoRA (`lora_rank` above 0), only the adapter's. A critic has no weights for transformers; with LoRA, verl also
    stores its frozen weights.
    """
    adapter = model.adapter_parameters(lora_rank)
    of_policy = 16 * (adapter or model.parameters)
    of_critic = 4 * (adapter + model.parameters) + 8 * (adapter or model.parameters)
    return (keep_checkpoints + 1) * (of_policy + of_critic * critic)


def _weights_and_gradients(
    model: ModelSummary, adapters: int, engine: Mapping[str, Any], ranks: int
) -> tuple[int, int]:
    """Bytes on each rank of a model that FSDP2 shards."""
    kept, trained = _bytes_of(engine["model_dtype"]), adapters or model.parameters
    return kept * (model.parameters + adapters) // ranks, kept * trained // ranks


def _resting(weights: int, gradients: int, engine: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of weights and of AdamW's moments that stay on the GPU between updates.

    Offloaded moments are loaded only for AdamW's step, after the activations are freed.
    """
    offloaded = engine["offload_policy"]
    return (
        0 if offloaded or engine["param_offload"] else weights,
        0 if offloaded or engine["optimizer_offload"] else 2 * gradients,
    )


def _bytes_of(name: str) -> int:
    return 2 if name in ("bf16", "bfloat16", "fp16", "float16") else 4
