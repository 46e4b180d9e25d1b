"""Whether a verl run fits its GPUs, and which settings would make it fit. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hgpo.integrations.verl.rank_memory import (
    GIB,
    RankSettings,
    Sizes,
    estimate_rank,
    sequences_at_a_time,
    vllm_weight_bytes,
)
from hgpo.integrations.verl.versions import Finding

_VERL = "verl.overrides.actor_rollout_ref"
_ADAPTER_RANK = 32
_SHARES = (0.5, 0.4, 0.3, 0.7, 0.8)

Change = tuple[str, str, Any]
"""The setting's full name, the attribute of `RankSettings` that it is, its value."""


def memory_finding(sizes: Sizes, settings: RankSettings, gpu: int) -> Finding:
    """What a GPU of `gpu` bytes will be asked for, and what to change where that is too much.

    Args:
        sizes: of the model.
        settings: of the run.
        gpu: bytes of the smallest GPU that trains.
    """
    found = f"{described(sizes, settings, gpu)}; {gpu / GIB:.1f} GiB are there"
    if fits(sizes, settings, gpu):
        return Finding("GPU memory", found)
    changes = fitting_changes(sizes, settings, gpu)
    if changes is None:
        return Finding("GPU memory", found, "no settings were found that fit: more or larger GPUs", fatal=True)
    return Finding("GPU memory", found, f"this would fit: {' '.join(map(_written, changes))}", fatal=True)


def fits(sizes: Sizes, settings: RankSettings, gpu: int) -> bool:
    """Whether every phase has room, and vLLM for one sequence at least."""
    return estimate_rank(sizes, settings, gpu).total <= gpu and sequences_at_a_time(sizes, settings, gpu) >= 1


def described(sizes: Sizes, settings: RankSettings, gpu: int) -> str:
    """The fullest phase with its parts, and what vLLM has room for."""
    estimate = estimate_rank(sizes, settings, gpu)
    parts = sorted(estimate.phases[estimate.largest].items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts if size >= 0.05 * GIB)
    sequences = sequences_at_a_time(sizes, settings, gpu)
    room = f"vLLM's share holds {sequences} sequences of {settings.max_model_len} tokens"
    if sequences < 1:
        weights = vllm_weight_bytes(sizes, settings)
        room = f"vLLM's share of {settings.vllm_share * gpu / GIB:.1f} GiB has no room beside its weights of "
        room += f"{weights / GIB:.1f}"
    return f"about {estimate.total / GIB:.1f} GiB in the phase {estimate.largest!r} ({listed}); {room}"


def fitting_changes(sizes: Sizes, settings: RankSettings, gpu: int) -> list[Change] | None:
    """Few and mild changes with which a run fits; None where none do.

    They are tried one upon the other, the mildest first; then each that is not needed is taken back.
    """
    changes: list[Change] = []
    for change in _ladder(settings):
        changes = [known for known in changes if known[0] != change[0]] + [change]
        if fits(sizes, _changed(settings, changes), gpu):
            break
    else:
        return None
    for change in reversed(changes):
        without = [known for known in changes if known != change]
        if fits(sizes, _changed(settings, without), gpu):
            changes = without
    return changes


def _ladder(settings: RankSettings) -> Iterator[Change]:
    """First what costs little time, last what changes what is trained."""
    if not settings.fused:
        yield f"{_VERL}.model.use_fused_kernels", "fused", True
    if not settings.offload_moments:
        yield f"{_VERL}.actor.fsdp_config.optimizer_offload", "offload_moments", True
    if not settings.offload_parameters:
        yield f"{_VERL}.actor.fsdp_config.param_offload", "offload_parameters", True
    for share in _SHARES:
        yield f"{_VERL}.rollout.gpu_memory_utilization", "vllm_share", share
    tokens = settings.micro_batch_tokens
    while tokens > settings.max_model_len:
        tokens = max(settings.max_model_len, tokens // 2)
        for share in (settings.vllm_share, *_SHARES):
            yield f"{_VERL}.rollout.gpu_memory_utilization", "vllm_share", share
            yield "training.micro_batch_tokens", "micro_batch_tokens", tokens
    if not settings.lora_rank:
        for share in (settings.vllm_share, *_SHARES):
            yield f"{_VERL}.rollout.gpu_memory_utilization", "vllm_share", share
            yield "policy.lora.rank", "lora_rank", _ADAPTER_RANK


def _changed(settings: RankSettings, changes: list[Change]) -> RankSettings:
    return replace(settings, **{attribute: value for _, attribute, value in changes})


def _written(change: Change) -> str:
    return f"{change[0]}={str(change[2]).lower()}"
