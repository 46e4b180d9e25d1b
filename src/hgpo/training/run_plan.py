"""What a run prints first: model, plan, notes on settings for a different model size, and the memory estimate.

The estimate of memory never rejects a run. It is arithmetic on the model's sizes, for the longest prompts and responses
that the settings allow. tests/unit/training/test_memory.py compares it with the measured peak of whole updates on a
CPU; on CUDA it has not been measured. Mixtures of experts are not covered.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from hgpo.agents.text_template import label
from hgpo.config import Config, PolicySettings, TrainingSettings, WarmStartSettings
from hgpo.options import converted_options
from hgpo.policies.backends import AUTO, BACKENDS, DEFAULT
from hgpo.policies.loading import load_model_config, resolve_device
from hgpo.policies.local import batch_limits
from hgpo.policies.vllm import CPU_CACHE_BYTES, GPU_SHARE
from hgpo.policies.weights import computes_in_bfloat16
from hgpo.runs.metrics import GIB, memory_field, status_bytes
from hgpo.utils.progress import Reporter
from hgpo.utils.text import counted

_TINY = 20_000_000  # parameters; language models have more, policies that are trained from scratch here have fewer
_SLOW, _FAST = 1e-5, 2e-4  # learning rates: too small for a tiny policy; so large that a language model forgets
_FAST_IMITATION = 5e-4
_REASONING_TOKENS = 64  # fewest tokens that a thought and an action take
_FLOAT = 4  # bytes
_TINY_VOCABULARY = 4_096  # an upper bound: a tiny model's vocabulary is built from demonstrations
_LIBRARIES = 640 * 2**20  # allocators and matrix libraries, without tensors; measured on a CPU


def plan_lines(config: Config, parameters: int, where: str) -> list[str]:
    """Model, plan, and notes on settings that do not suit the model; one line each.

    Args:
        config: settings of the run.
        parameters: parameters of the model.
        where: text about the training's device, see `on_device`.
    """
    policy, rollout, updates = config.policy, config.rollout, config.training.updates
    about = "at most " if policy.model == "tiny" else ""  # its vocabulary is known after the demonstrations
    adapters = f" and trained adapters of rank {policy.lora.rank}" if policy.lora.rank else ""
    tasks, episodes = rollout.tasks_per_update, rollout.tasks_per_update * rollout.group_size
    return [
        f"Model: {policy.model}, {about}{parameters:,} parameters{adapters}, {where}",
        f"Plan: {counted(updates, 'update')}, each of {counted(tasks, 'task')} with {rollout.group_size} rollouts of "
        f"at most {config.environment.max_steps} steps: up to {episodes * config.environment.max_steps:,} steps",
        *(f"Note: {note}" for note in _learning_rate_notes(policy, config.training, config.warm_start, parameters)),
        *(f"Note: {note}" for note in _response_length_notes(config.agent.template, policy.max_response_tokens)),
    ]


def on_device(device: torch.device) -> str:
    """Where one process trains: "on cpu with 2 threads"."""
    threads = f" with {counted(torch.get_num_threads(), 'thread')}" if device.type == "cpu" else ""
    return f"on {device}{threads}"


def _learning_rate_notes(
    policy: PolicySettings, training: TrainingSettings, start: WarmStartSettings, parameters: int
) -> list[str]:
    """Notes on learning rates that suit a model of another size."""
    whole = not policy.lora.rank  # adapters take larger rates
    notes = []
    if parameters < _TINY and training.learning_rate < _SLOW:
        notes.append(
            f"training.learning_rate = {training.learning_rate:g} suits a language model and hardly changes a tiny "
            "policy: the recipe quickstart has 5e-4"
        )
    if parameters >= _TINY and whole and training.learning_rate >= _FAST:
        notes.append(
            f"training.learning_rate = {training.learning_rate:g} suits a tiny policy; with it, a language model "
            "forgets what it knew: the published recipe has 1e-6, smollm2 4e-5"
        )
    if parameters >= _TINY and whole and start.enabled and start.learning_rate >= _FAST_IMITATION:
        notes.append(
            f"warm_start.learning_rate = {start.learning_rate:g} suits a tiny policy: the recipe smollm2 has 4e-5"
        )
    return notes


def _response_length_notes(template: str, max_response_tokens: int) -> list[str]:
    """A note if the template asks for thoughts and the response limit is too short for them."""
    thinks = "<think>" in template or template.endswith("reasoning")
    if not thinks or max_response_tokens >= _REASONING_TOKENS:
        return []
    return [
        f"agent.template = {label(template)} asks for thoughts, which policy.max_response_tokens = "
        f"{max_response_tokens} cuts off: the published recipe has 512"
    ]


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
        """Parameters of LoRA on every linear map of the layers, if queries are as wide as the hidden states."""
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
    *,
    own_critic: bool = False,
) -> dict[str, dict[str, float]]:
    """GiB by phase of a run and by part. Only one phase runs at a time, so the largest phase determines the need.

    Args:
        model: the sizes of the trained model.
        policy: settings of the policy.
        training: settings of the updates.
        start: settings of the warm start.
        device: the training's device; on a CPU the process itself is included.
        own_critic: whether a critic with separate layers is trained as well.
    """
    number = 2 if computes_in_bfloat16(policy.precision, device, model.configuration) else _FLOAT
    trained, copies = model.parameters, 0
    if policy.lora.rank:
        trained, copies = model.adapter_parameters(policy.lora.rank), 1  # in addition to the frozen weights
    elif training.kl_coefficient:
        copies = 1  # the reference
    backend = DEFAULT if policy.backend == AUTO else policy.backend
    options = converted_options(f"policy backend {backend!r}", BACKENDS.get(backend).make, policy.options, given=1)
    engine = backend == "vllm" and device.type == "cuda"
    copies += backend not in (DEFAULT, "server") and not engine  # other samplers copy the weights in this process
    used = {
        "process": _LIBRARIES + (status_bytes("VmRSS") if device.type == "cpu" else 0),
        "weights": _FLOAT * trained + number * copies * model.parameters,
        "optimiser": 3 * _FLOAT * trained,  # gradients and AdamW's two moments
    }
    longest = policy.max_prompt_tokens + policy.max_response_tokens
    rows, row_tokens = batch_limits(device, *map(options.get, ("max_batch_size", "max_batch_tokens")))
    rows = max(1, min(rows, row_tokens // longest)) if backend == DEFAULT else 0
    cached = 2 * number * longest * model.layers * model.key_value_size

    def passed(tokens: int) -> dict[str, int]:
        tokens = max(tokens, longest)
        responses = tokens * policy.max_response_tokens // longest
        logits = min(responses * model.vocabulary, max(training.max_logits, model.vocabulary))
        activations = model.activation_bytes(tokens, number, training.gradient_checkpointing)
        return {"activations": activations, "logits": 5 * _FLOAT * logits}  # log-probs, probabilities, gradients

    if backend == "vllm" and device.type == "cpu":
        used["vLLM's cache"] = CPU_CACHE_BYTES  # also during updates
    if own_critic:
        used["critic"] = 4 * _FLOAT * trained + number * bool(policy.lora.rank) * model.parameters
    phases = {
        "the updates": used | passed(min(training.micro_batch_tokens, training.mini_batch_size * longest)),
        "sampling": used | {"cache": rows * (cached + 6 * _FLOAT * model.vocabulary)},  # with logits of one step
    }
    if engine:  # its weights and cache; during updates it sleeps
        share = options.get("gpu_memory_utilization", GPU_SHARE)
        phases["sampling"] = used | {"vLLM": share * torch.cuda.mem_get_info(device)[1]}
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
    *,
    own_critic: bool = False,
) -> None:
    """Print the estimate of the memory if it exceeds 1 GiB; warn if it exceeds the available memory."""
    device = resolve_device(policy.device)
    phases = estimate_memory(model, policy, training, start, device, own_critic=own_critic)
    available = available_gib(device)
    needed, line = memory_needed(phases, available)
    if available is None or needed <= available:
        if needed > 1:
            reporter.say(f"Memory: {line}")
        return
    reporter.warn(
        f"Warning: memory may not suffice: {line}. To need less, set training.gradient_checkpointing=true or "
        "policy.lora.rank=16, or lower training.micro_batch_tokens, policy.options.max_batch_tokens or, with vLLM, "
        "policy.options.gpu_memory_utilization"
    )


def memory_needed(phases: dict[str, dict[str, float]], available: float | None) -> tuple[float, str]:
    """GiB of the phase that needs most, and a line with it, its parts from 0.05 GiB on, and the available memory.

    Example: `memory_needed({"sampling": {"cache": 1.0}}, 2.0)[1]` is "about 1.0 GiB for sampling (cache 1.0); 2.0
    GiB available".
    """
    phase, parts = max(phases.items(), key=lambda one: sum(one[1].values()))
    needed, ordered = sum(parts.values()), sorted(parts.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {gib:.1f}" for name, gib in ordered if gib >= 0.05)
    known = "" if available is None else f"; {available:.1f} GiB available"
    return needed, f"about {needed:.1f} GiB for {phase} ({listed}){known}"


def available_gib(device: torch.device, root: Path = Path("/")) -> float | None:
    """GiB that this process may use on `device`; on a CPU this includes what the process already uses.

    Args:
        device: the device.
        root: where `proc` and `sys` are mounted. The limit of a container (cgroup v2) also applies.

    Returns:
        The size, or None if it is unknown (CPUs without Linux's /proc).
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / GIB
    if not (free := memory_field(root / "proc/meminfo", "MemAvailable:")):
        return None
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # no such group, or "max" for no limit
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, max(0, limit - used + int(cached.get("inactive_file", 0))))  # reclaimable
    return (free + status_bytes("VmRSS", root)) / GIB
