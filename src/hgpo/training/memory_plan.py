"""What a run's settings come to for the memory: sizes of the model, of what is held of it, and of the batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from hgpo.config import Config
from hgpo.policies.precision import computes_in_bfloat16
from hgpo.policies.pretrained import load_model_config
from hgpo.policies.transformers import batch_limits
from hgpo.training.available_memory import resident_memory
from hgpo.training.memory_estimate import Limits, MemoryEstimate, ModelShape, Weights, estimate_memory
from hgpo.training.prefix_trees import wants_trees

_TINY_VOCABULARY = 4_096  # what is built from demonstrations is known once they are played; it has fewer words
_ALLOCATOR = 640 * 2**20
"""Holes of C's allocator within an update (`hgpo.training.allocator`), and what matrix libraries hold; measured."""
_DEVICE_LIBRARIES = 512 * 2**20  # of CUDA's matrix libraries, and memory in pieces; not measured


@dataclass(frozen=True, slots=True)
class Outline:
    """A model without its weights.

    Attributes:
        shape: its sizes.
        parameters: how many it has, shared ones once.
        configuration: what transformers knows of it.

    Example: `Outline(ModelShape(576, 30, 9, 3, 64, 1536, 49_152), 134_515_008, LlamaConfig(…))`.
    """

    shape: ModelShape
    parameters: int
    configuration: Any = field(compare=False)


def outline_of(config: Config) -> Outline:
    """The model that the settings name; no weights are loaded.

    Raises:
        ValueError, OSError: there is none; see `hgpo.policies.pretrained.load_model`.
    """
    policy = config.policy
    with torch.device("meta"):
        if policy.model == "tiny":
            from hgpo.policies.tiny import build_model

            tiny = policy.tiny
            model: Any = build_model(
                _TINY_VOCABULARY, hidden_size=tiny.hidden_size, layers=tiny.layers, heads=tiny.attention_heads
            )
        else:
            model = AutoModelForCausalLM.from_config(load_model_config(policy.model, revision=policy.revision))
    return outline_of_model(model)


def outline_of_model(model: Any) -> Outline:
    """Sizes of a causal language model of transformers; what its configuration does not name is as in a Llama."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    names = [name for name, _ in model.named_parameters()]
    return Outline(
        ModelShape(
            hidden_size=config.hidden_size,
            layers=config.num_hidden_layers,
            heads=heads,
            key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            intermediate_size=getattr(config, "intermediate_size", None) or 4 * config.hidden_size,
            vocabulary=config.vocab_size,
            head_norms=any(name.endswith("q_norm.weight") for name in names),
        ),
        sum(parameter.numel() for parameter in model.parameters()),
        model.config,
    )


def estimate_run(config: Config, outline: Outline, device: torch.device) -> MemoryEstimate:
    """What the run takes on `device`, this process included where that is the CPU.

    Args:
        config: its settings.
        outline: of the model that they name.
        device: where it is trained.
    """
    low = computes_in_bfloat16(config.training.precision, device, outline.configuration)
    process = resident_memory() + _ALLOCATOR if device.type == "cpu" else _DEVICE_LIBRARIES
    weights, limits = _weights(config, outline, low), _limits(config, outline, device, low)
    return estimate_memory(outline.shape, weights, limits, process)


def _weights(config: Config, outline: Outline, low: bool) -> Weights:
    """Adapters train beside frozen weights in the computing precision; else all are trained, beside a reference.

    Another sampler than the built-in one has weights of its own; what it caches beside them is its own affair. Every
    linear map is taken to have an adapter, which is the most that `policy.lora.targets` can ask for.
    """
    computing = 2 if low else 4
    copied = 0 if config.policy.backend == "transformers" else computing * outline.parameters
    if rank := config.policy.lora.rank:
        adapters = outline.shape.adapter_parameters(rank)
        return Weights(adapters, frozen=outline.parameters, frozen_bytes=computing, sampler_bytes=copied)
    reference = computing * outline.parameters if config.training.kl_coefficient else 0
    return Weights(outline.parameters, reference_bytes=reference, sampler_bytes=copied)


def _limits(config: Config, outline: Outline, device: torch.device, low: bool) -> Limits:
    training, policy, warm_start = config.training, config.policy, config.warm_start
    built_in = policy.backend == "transformers"
    asked = (policy.options.get(name) for name in ("max_batch_size", "max_batch_tokens"))
    rows, tokens = batch_limits(device, *asked) if built_in else (0, 0)
    longest = policy.max_prompt_tokens + policy.max_response_tokens
    imitated = min(warm_start.micro_batch_tokens, warm_start.batch_size * longest)
    return Limits(
        prompt_tokens=policy.max_prompt_tokens,
        response_tokens=policy.max_response_tokens,
        micro_batch_tokens=min(training.micro_batch_tokens, training.mini_batch_size * longest),
        max_logits=training.max_logits,
        share_prefixes=wants_trees(training.share_prefixes, outline.configuration),
        recompute_layers=training.gradient_checkpointing,
        low_precision=low,
        entropy_gradient=training.entropy_coefficient > 0,
        sampler_rows=min(rows, _played_together(config)),
        sampler_tokens=tokens,
        warm_start_tokens=imitated if warm_start.enabled else 0,
        accelerator=device.type != "cpu",
    )


def _played_together(config: Config) -> int:
    """Most episodes that wait for a response at a time; all games of a split are taken to be many."""
    rollout, evaluation, warm_start = config.rollout, config.evaluation, config.warm_start
    probed = warm_start.probe_games if warm_start.enabled else 0
    return max(rollout.tasks_per_update * rollout.group_size, evaluation.games or 2**20, probed)
