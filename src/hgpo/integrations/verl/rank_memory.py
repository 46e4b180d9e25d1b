"""How much memory a GPU of a verl run will take: arithmetic on a model's sizes and verl's composed configuration.

Four phases follow each other on every GPU, and the largest counts:

    rollout     vLLM's share of the GPU, beside what of the training stays there
    sync        vLLM's weights are back, its cache is not; the trained weights are handed over tensor by tensor
    update      weights, gradients and moments of this rank's shard; activations and logits of one micro-batch
    optimiser   AdamW's own work, once the passes are done

Passes for log-probs alone take less than the update's; the reference's weights wait on the host (FSDP2's offload).

verl 0.9.1 with FSDP2: float32 weights, gradients and moments are sharded over all ranks, layers are gathered in the
computing precision one by one, embeddings and head through the whole pass where they are tied or fused. What a layer
keeps is that of `hgpo.training.memory_estimate`, which was held against measurements on a CPU. **Nothing here has been
measured on CUDA**; what sleeps beside the training is a guess (`ASLEEP`).

Letters: N tokens of a micro-batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.training.memory_estimate import Limits, MemoryEstimate, ModelShape, layer_bytes

GIB = 2**30
ASLEEP = 2 * GIB
"""CUDA contexts and libraries of the training process and of vLLM's, and vLLM's CUDA graphs while it sleeps."""
_FLOAT, _HALF = 4, 2
_MOMENTS = 2  # of AdamW, of the weights' precision
_LOGIT, _FUSED_LOGIT = 8, 22
"""Bytes of each logit: in bfloat16 with probabilities, products and gradients; fused, with float32 temporaries."""
_FUSED_CHUNK = 512
_GATHERED_LAYERS = 2  # the one that works, and the next
_SYNC_BUCKETS = 2  # one that is filled while the other is read


@dataclass(frozen=True, slots=True)
class RankSettings:
    """What of verl's configuration decides the memory of a rank.

    Attributes:
        ranks: training processes, which share weights, gradients and moments.
        tensor_parallel: GPUs that share one copy of vLLM.
        vllm_share: of the GPU's memory that vLLM takes.
        max_model_len: tokens of the longest sequence.
        micro_batch_tokens: of one pass.
        lora_rank: 0: all parameters are trained.
        weight_bytes: of each weight that is kept for training.
        number_bytes: of each number that is computed with.
        fused: log-probs are made without all logits.
        offload_parameters: weights and gradients wait on the host.
        offload_moments: so do the optimiser's moments.
        recompute_layers: layers keep their inputs alone.
        keeps_gradients_whole: gradients are shared out after the last micro-batch only.
        bucket: bytes that are handed to vLLM at a time.

    Example: `rank_settings(composed)` of a recipe's `--dry-run`.
    """

    ranks: int
    tensor_parallel: int
    vllm_share: float
    max_model_len: int
    micro_batch_tokens: int
    lora_rank: int
    weight_bytes: int
    number_bytes: int
    fused: bool
    offload_parameters: bool
    offload_moments: bool
    recompute_layers: bool
    keeps_gradients_whole: bool
    bucket: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is known of a model without its weights.

    Attributes:
        shape: its sizes.
        parameters: how many it has, tied ones once.

    Example: Qwen2.5-1.5B is `Sizes(ModelShape(1536, 28, 12, 2, 128, 8960, 151_936), 1_543_714_304)`.
    """

    shape: ModelShape
    parameters: int

    @property
    def layers_alone(self) -> int:
        """Parameters without embeddings and head, of all layers."""
        return self.shape.layers * self.shape.layer_weights

    @property
    def ends(self) -> int:
        """Parameters of embeddings, and of the head where it is not tied to them."""
        return self.parameters - self.layers_alone


def rank_settings(verl_config: Mapping[str, Any]) -> RankSettings:
    """What decides, from verl's composed configuration."""
    model, actor = verl_config["actor_rollout_ref"]["model"], verl_config["actor_rollout_ref"]["actor"]
    rollout, trainer = verl_config["actor_rollout_ref"]["rollout"], verl_config["trainer"]
    engine = actor["fsdp_config"]
    precision = engine["mixed_precision"] or {}
    return RankSettings(
        ranks=trainer["nnodes"] * trainer["n_gpus_per_node"],
        tensor_parallel=rollout["tensor_model_parallel_size"],
        vllm_share=rollout["gpu_memory_utilization"],
        max_model_len=rollout["max_model_len"],
        micro_batch_tokens=actor["ppo_max_token_len_per_gpu"],
        lora_rank=(model.get("lora") or {}).get("rank", 0) or model["lora_rank"],
        weight_bytes=_bytes_of(engine["model_dtype"]),
        number_bytes=_bytes_of(precision.get("param_dtype", "bf16")),
        fused=model["use_fused_kernels"],
        offload_parameters=engine["param_offload"] or engine["offload_policy"],
        offload_moments=engine["optimizer_offload"] or engine["offload_policy"],
        recompute_layers=model["enable_gradient_checkpointing"],
        keeps_gradients_whole=engine["use_no_sync_for_gradient_accumulation"],
        bucket=rollout["checkpoint_engine"]["update_weights_bucket_megabytes"] * 2**20,
    )


def estimate_rank(sizes: Sizes, settings: RankSettings, gpu: int) -> MemoryEstimate:
    """What the fullest GPU takes at most, by phase.

    Args:
        sizes: of the model.
        settings: of the run.
        gpu: bytes that the GPU has; vLLM takes a share of these, whatever it needs.
    """
    held = _held(sizes, settings)
    resting = {name: size for name, size in held.items() if not _offloaded(name, settings)}
    asleep = {"asleep": ASLEEP}
    served = {"vLLM's weights": vllm_weight_bytes(sizes, settings)}
    largest = _FLOAT * sizes.shape.embedding_weights
    # Moments are loaded for the optimiser's step alone, when activations are gone.
    passed = {**asleep, **held, **_pass_bytes(sizes, settings)}
    if settings.offload_moments:
        passed = {name: size for name, size in passed.items() if name != "moments"}
    phases = {
        "rollout": {**asleep, **_without(resting, "gradients"), "vLLM": int(settings.vllm_share * gpu)},
        "sync": {
            **asleep,
            **_without({**resting, "weights": held["weights"]}, "gradients"),
            **served,
            "weights on their way": 2 * largest + _SYNC_BUCKETS * settings.bucket,
        },
        "update": passed,
        "optimiser": {**asleep, **held, "optimiser's step": held["gradients"]},
    }
    return MemoryEstimate(
        {phase: {name: size for name, size in parts.items() if size} for phase, parts in phases.items()}
    )


def vllm_weight_bytes(sizes: Sizes, settings: RankSettings) -> int:
    """Of the copy that vLLM serves, on one GPU."""
    return settings.number_bytes * sizes.parameters // settings.tensor_parallel


def sequences_at_a_time(sizes: Sizes, settings: RankSettings, gpu: int) -> int:
    """How many sequences of full length vLLM's cache has room for on one GPU; 0 or less: it does not start.

    An eighth of vLLM's share is left for its activations and CUDA graphs.
    """
    shape = sizes.shape
    token = 2 * settings.number_bytes * shape.layers * shape.key_value_heads * shape.head_size
    room = int(settings.vllm_share * gpu * 7 / 8) - vllm_weight_bytes(sizes, settings)
    return room * settings.tensor_parallel // (token * settings.max_model_len)


def _held(sizes: Sizes, settings: RankSettings) -> dict[str, int]:
    """This rank's shard of what is kept from update to update, and of the gradients."""
    adapters = sizes.shape.adapter_parameters(settings.lora_rank)
    trained = adapters if settings.lora_rank else sizes.parameters
    each = settings.weight_bytes
    return {
        "weights": each * (sizes.parameters + adapters) // settings.ranks,
        "gradients": each * trained // (1 if settings.keeps_gradients_whole else settings.ranks),
        "moments": _MOMENTS * each * trained // settings.ranks,
    }


def _offloaded(name: str, settings: RankSettings) -> bool:
    return settings.offload_moments if name == "moments" else settings.offload_parameters


def _without(parts: dict[str, int], name: str) -> dict[str, int]:
    return {part: size for part, size in parts.items() if part != name}


def _pass_bytes(sizes: Sizes, settings: RankSettings) -> dict[str, int]:
    """Gathered weights and their gradients, activations and logits of one micro-batch.

    verl cuts micro-batches of like work and not of like length, so one may be longer than the bound, by a sequence.
    """
    shape, number = sizes.shape, settings.number_bytes
    tokens_N = settings.micro_batch_tokens + settings.max_model_len
    limits = Limits(
        prompt_tokens=settings.max_model_len,
        response_tokens=0,
        micro_batch_tokens=tokens_N,
        max_logits=0,
        low_precision=number == _HALF,
    )
    layer = tokens_N * layer_bytes(shape, limits, width_W=0)  # FlashAttention keeps no mask
    layer_input = tokens_N * number * shape.hidden_size
    kept = shape.layers * (layer_input if settings.recompute_layers else layer)
    logits = min(_FUSED_CHUNK, tokens_N) * _FUSED_LOGIT if settings.fused else tokens_N * _LOGIT * number // _HALF
    gathered = number * (_GATHERED_LAYERS * shape.layer_weights + sizes.ends)
    trained = 0 if settings.lora_rank else (number + _FLOAT) * (shape.layer_weights + sizes.ends)
    return {
        "gathered layers": gathered + trained,
        # A layer is recomputed once no logits are held.
        "activations": kept + 2 * layer_input + max(0, layer - logits * shape.vocabulary),
        "logits": logits * shape.vocabulary,
    }


def _bytes_of(name: str) -> int:
    return _HALF if name in ("bf16", "bfloat16", "fp16", "float16") else _FLOAT
