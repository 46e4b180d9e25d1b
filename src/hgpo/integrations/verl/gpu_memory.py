"""An estimate of the memory of a GPU in a run on verl: arithmetic on the model's sizes and verl's composed settings.

verl 0.9.1 with FSDP2 shards weights, gradients and AdamW's moments over all ranks and gathers layers in the computing
precision one by one; the reference waits on the host. Nothing here has been measured on CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hgpo.config import Config
from hgpo.integrations.verl.preflight import Finding
from hgpo.training.memory import ModelSummary, described, summarise_model
from hgpo.training.oom import GIB

_CONTEXTS = 2 * GIB  # CUDA contexts and libraries of the training process and of vLLM; a guess
_FUSED_CHUNK, _FUSED_LOGIT, _LOGIT = 512, 22, 4  # logits at a time with fused kernels; bytes of each, per byte without
_REMEDY = (
    "memory may not suffice. What reduces it: a smaller training.micro_batch_tokens, policy.lora.rank=32, a smaller "
    "verl.overrides.actor_rollout_ref.rollout.gpu_memory_utilization, offload (docs/scaling.md)"
)


def memory_finding(config: Config, verl_config: Mapping[str, Any], gpu: int) -> Finding:
    """The estimate for a GPU of `gpu` bytes; a note where it exceeds that, never fatal."""
    try:
        model = summarise_model(config.policy)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        return Finding("GPU memory", "no estimate", f"the model's sizes are unknown here ({reason})")
    phases = estimate_gpu_memory(model, verl_config, gpu)
    phase, parts = max(phases.items(), key=lambda one: sum(one[1].values()))
    needed = sum(parts.values())
    found = f"about {needed:.1f} GiB for {phase} ({described(parts)}); {gpu / GIB:.1f} GiB available"
    return Finding("GPU memory", found, _REMEDY if needed * GIB > gpu else "")


def estimate_gpu_memory(model: ModelSummary, verl_config: Mapping[str, Any], gpu: int) -> dict[str, dict[str, float]]:
    """GiB by phase and by part; the phases follow each other, so the largest counts.

    Args:
        model: sizes of the trained model.
        verl_config: verl's composed configuration.
        gpu: bytes of the GPU, of which vLLM takes a share.
    """
    part, trainer = verl_config["actor_rollout_ref"], verl_config["trainer"]
    settings, engine, rollout = part["model"], part["actor"]["fsdp_config"], part["rollout"]
    ranks = trainer["nnodes"] * trainer["n_gpus_per_node"]
    rank = (settings.get("lora") or {}).get("rank", 0) or settings["lora_rank"]
    kept = _bytes_of(engine["model_dtype"])
    number = _bytes_of((engine["mixed_precision"] or {}).get("param_dtype", "bf16"))
    adapters = model.adapter_parameters(rank)
    trained = adapters or model.parameters
    weights, gradients = kept * (model.parameters + adapters) // ranks, kept * trained // ranks
    moments = 2 * gradients
    # verl cuts micro-batches of similar work, so that one may exceed the bound by a sequence.
    tokens = part["actor"]["ppo_max_token_len_per_gpu"] + rollout["max_model_len"]
    logits = _FUSED_CHUNK * _FUSED_LOGIT if settings["use_fused_kernels"] else tokens * _LOGIT * number
    embeddings = 2 * model.vocabulary * model.hidden_size
    gathered = embeddings + 2 * (model.parameters - embeddings) // model.layers
    offloaded = engine["offload_policy"]
    resting = 0 if offloaded or engine["param_offload"] else weights
    if offloaded or engine["optimizer_offload"]:
        moments = 0  # loaded for AdamW's step alone, when the activations are gone
    phases = {
        "the updates": {
            "contexts": _CONTEXTS,
            "weights": weights,
            "optimiser": gradients + moments,
            "gathered layers": gathered * (number if adapters else 2 * number + 4),
            "activations": model.activation_bytes(tokens, number, settings["enable_gradient_checkpointing"], number),
            "logits": logits * model.vocabulary,
        },
        "sampling": {
            "contexts": _CONTEXTS,
            "weights and optimiser": resting + moments,
            "vLLM": int(rollout["gpu_memory_utilization"] * gpu),
        },
    }
    return {name: {part: size / GIB for part, size in parts.items()} for name, parts in phases.items()}


def _bytes_of(name: str) -> int:
    return 2 if name in ("bf16", "bfloat16", "fp16", "float16") else 4
