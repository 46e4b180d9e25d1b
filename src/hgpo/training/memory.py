"""Estimates the memory of a run before it starts. The estimate never rejects a run.

The estimate is arithmetic on the model's sizes, for the longest prompts and responses that the settings allow. It was
RATIO times the measured peak of whole updates on a CPU (tests/unit/training/test_memory.py); on CUDA it has not been
measured. Mixtures of experts are not covered.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from hgpo.config import PolicySettings, TrainingSettings, WarmStartSettings
from hgpo.policies.loading import load_model_config, resolve_device
from hgpo.policies.local import batch_limits
from hgpo.policies.weights import computes_in_bfloat16
from hgpo.runs.metrics import GIB, memory_field, status_bytes
from hgpo.utils.progress import Reporter

_FLOAT = 4  # bytes
_TINY_VOCABULARY = 4_096  # an upper bound: a tiny model's vocabulary is built from demonstrations
_LIBRARIES = 640 * 2**20  # allocators and matrix libraries, without tensors; measured on a CPU


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The sizes of a causal language model.

    Attributes:
        parameters: all parameters, tied ones once.
        hidden_size: width of the hidden states.
        intermediate_size: inner width of a layer's MLP.
        key_value_size: numbers in the keys of one token and layer; the values have as many.
        layers: transformer layers.
        vocabulary: tokens in the vocabulary.
        configuration: the configuration of transformers.
    """

    parameters: int
    hidden_size: int
    intermediate_size: int
    key_value_size: int
    layers: int
    vocabulary: int
    configuration: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, model: Any) -> ModelSummary:
        """Sizes of a model of transformers; sizes that its configuration lacks are taken as in a Llama."""
        config = model.config.get_text_config()
        hidden_size, heads = config.hidden_size, config.num_attention_heads
        head_size = getattr(config, "head_dim", None) or hidden_size // heads
        return cls(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            hidden_size=hidden_size,
            intermediate_size=getattr(config, "intermediate_size", None) or 4 * hidden_size,
            key_value_size=head_size * (getattr(config, "num_key_value_heads", None) or heads),
            layers=config.num_hidden_layers,
            vocabulary=config.vocab_size,
            configuration=model.config,
        )

    def adapter_parameters(self, rank: int) -> int:
        """Parameters of LoRA on every linear map of the layers, the queries as wide as the hidden states."""
        return self.layers * rank * (9 * self.hidden_size + 2 * self.key_value_size + 3 * self.intermediate_size)

    def activation_bytes(self, tokens: int, number: int, recompute_layers: bool, residual: int = _FLOAT) -> int:
        """Bytes kept for the backward pass; with recomputed layers the inputs of all layers and one whole layer.

        A layer's norms keep float32; attention and MLP keep four tensors each (Llama and Qwen2 under SDPA attention).

        Args:
            tokens: tokens of the micro-batch, padding included.
            number: bytes of each number that a linear map returns.
            recompute_layers: layers keep only their inputs.
            residual: bytes of each number between the layers; autocast keeps float32 there.
        """
        layer = 26 * self.hidden_size + 4 * number * (self.hidden_size + self.intermediate_size)
        inputs = residual * self.hidden_size
        return tokens * (self.layers * inputs + layer if recompute_layers else self.layers * layer)


def summarise_model(policy: PolicySettings) -> ModelSummary:
    """The sizes of the model that the settings name; no weights are loaded.

    Raises:
        ValueError, OSError: there is no such model; see `hgpo.policies.loading.load_model`.
    """
    with torch.device("meta"):
        if policy.model != "tiny":
            found = load_model_config(policy.model, revision=policy.revision)
            return ModelSummary.of(AutoModelForCausalLM.from_config(found))
        from hgpo.policies.tiny import build_model

        tiny = policy.tiny
        sizes = {"hidden_size": tiny.hidden_size, "layers": tiny.layers, "heads": tiny.attention_heads}
        return ModelSummary.of(build_model(_TINY_VOCABULARY, **sizes))


def estimate_memory(
    model: ModelSummary,
    policy: PolicySettings,
    training: TrainingSettings,
    start: WarmStartSettings,
    device: torch.device,
) -> dict[str, dict[str, float]]:
    """GiB by phase of a run and by part; the phases follow each other, so the largest counts.

    Args:
        model: the sizes of the trained model.
        policy: its settings.
        training: settings of the updates.
        start: settings of the warm start.
        device: where it is trained; on a CPU the process itself is included.
    """
    number = 2 if computes_in_bfloat16(policy.precision, device, model.configuration) else _FLOAT
    trained, copies = model.parameters, 0
    if policy.lora.rank:
        trained, copies = model.adapter_parameters(policy.lora.rank), 1  # in addition to the frozen weights
    elif training.kl_coefficient:
        copies = 1  # the reference
    copies += policy.backend != "transformers"  # other samplers copy the weights
    used = {
        "process": _LIBRARIES + (status_bytes("VmRSS") if device.type == "cpu" else 0),
        "weights": _FLOAT * trained + number * copies * model.parameters,
        "optimiser": 3 * _FLOAT * trained,  # gradients and AdamW's two moments
    }
    longest = policy.max_prompt_tokens + policy.max_response_tokens
    rows, row_tokens = batch_limits(device, *map(policy.options.get, ("max_batch_size", "max_batch_tokens")))
    rows = max(1, min(rows, row_tokens // longest)) if policy.backend == "transformers" else 0
    cached = 2 * number * longest * model.layers * model.key_value_size

    def passed(tokens: int) -> dict[str, int]:
        tokens = max(tokens, longest)
        responses = tokens * policy.max_response_tokens // longest
        logits = min(responses * model.vocabulary, max(training.max_logits, model.vocabulary))
        activations = model.activation_bytes(tokens, number, training.gradient_checkpointing)
        return {"activations": activations, "logits": 5 * _FLOAT * logits}  # log-probs, probabilities, gradients

    phases = {
        "the updates": used | passed(min(training.micro_batch_tokens, training.mini_batch_size * longest)),
        "sampling": used | {"cache": rows * (cached + 6 * _FLOAT * model.vocabulary)},  # with logits of one step
    }
    if start.enabled:
        snapshots = {"snapshots": 2 * 3 * _FLOAT * trained}
        phases["the warm start"] = used | snapshots | passed(min(start.micro_batch_tokens, start.batch_size * longest))
    return {name: {part: size / GIB for part, size in parts.items()} for name, parts in phases.items()}


def check_memory(
    model: ModelSummary,
    policy: PolicySettings,
    training: TrainingSettings,
    start: WarmStartSettings,
    reporter: Reporter,
) -> None:
    """Print an estimate above 1 GiB; warn where it exceeds what is available."""
    device = resolve_device(policy.device)
    phases, available = estimate_memory(model, policy, training, start, device), available_gib(device)
    phase, parts = max(phases.items(), key=lambda one: sum(one[1].values()))
    needed = sum(parts.values())
    line = f"about {needed:.1f} GiB for {phase} ({described(parts)})"
    line += "" if available is None else f"; {available:.1f} GiB available"
    if available is None or needed <= available:
        if needed > 1:
            reporter.say(f"Memory: {line}")
        return
    savings = ["a smaller training.micro_batch_tokens"]
    if phase == "sampling":
        savings = ["a smaller policy.options.max_batch_tokens"]
    elif not training.gradient_checkpointing:
        savings.append("training.gradient_checkpointing=true")
    if not policy.lora.rank:
        savings.append("policy.lora.rank=16")
    reporter.warn(f"Warning: memory may not suffice: {line}. To reduce it: {', '.join(savings)}")


def described(parts: dict[str, float]) -> str:
    """The parts from 0.05 GiB on, the largest first: "process 1.0, activations 0.1"."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {gib:.1f}" for name, gib in ordered if gib >= 0.05)


def available_gib(device: torch.device, root: Path = Path("/")) -> float | None:
    """GiB that this process may use on `device`; on a CPU what it uses already is included.

    Args:
        device: whose memory.
        root: where `proc` and `sys` are mounted. The limit of a container (control groups version 2) holds, too.

    Returns:
        None where it is unknown (CPUs without Linux's /proc).
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / GIB
    if not (free := memory_field(root / "proc/meminfo", "MemAvailable:")):
        return None
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # no such group, or "max" for no limit
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, max(0, limit - used + int(cached.get("inactive_file", 0))))  # cached files make way
    return (free + status_bytes("VmRSS", root)) / GIB
