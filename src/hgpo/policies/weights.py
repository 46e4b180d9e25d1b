"""The arithmetic of forward passes, and the merged weights of a module for samplers that copy the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch

from hgpo.policies.lora import base_model, has_adapter

Precision = Literal["auto", "float32", "bfloat16"]

_WIDE_ENOUGH = 256  # hidden size from which bfloat16 is faster on a CPU: docs/decisions/013-bfloat16-on-cpus.md
_NATIVE = ("amx_bf16", "avx512_bf16")


def autocast(model: Any, precision: Precision) -> torch.autocast:
    """A context in which `model` computes in bfloat16 or in its weights' type; see `computes_in_bfloat16`.

    The type of the weights does not change: float32 weights keep updates that bfloat16 weights would round away.
    """
    device = model.device
    low = computes_in_bfloat16(precision, device, model.config)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def computes_in_bfloat16(precision: Precision, device: torch.device, config: Any) -> bool:
    """Whether a model computes in bfloat16.

    "auto" is bfloat16 on CUDA, and on a CPU with bfloat16 instructions if the model is wide enough; else float32.

    Args:
        precision: the setting.
        device: the model's device.
        config: the model's configuration (transformers).
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return True
    wide = config.get_text_config().hidden_size >= _WIDE_ENOUGH
    return bool(wide and device.type == "cpu" and cpu_has_bfloat16())


def cpu_has_bfloat16() -> bool:
    """Whether the processor has bfloat16 instructions; False if PyTorch is too old to know."""
    capabilities: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    found = capabilities()
    return any(found.get(name, False) for name in _NATIVE)


def merged_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a causal language model, with adapters merged.

    Tied weights come once, under the name that the module lists first. Tensors without an adapter are the module's own;
    do not write to them. With a LoRA adapter of peft, a weight is W + ΔW, computed lazily in the wider of both types.
    Base and adapter do not change: merging in place and unmerging would not restore a bfloat16 base.

    Args:
        model: a model of transformers, or a `peft.PeftModel`.

    Raises:
        ValueError: an adapter is more than ΔW (DoRA, biases, whole trained modules), or its weight is tied to another.
    """
    base, adapted = _adapted_layers(model)
    kept: dict[int, str] = {}  # name by tensor id, which tied names share
    for stored, tensor in base.state_dict(keep_vars=True).items():
        layer = _layer_around(stored, adapted)
        if layer is not None and not stored.startswith(f"{layer}.base_layer."):
            continue  # the adapter's own
        name = stored.replace(".base_layer.", ".") if layer is not None else stored
        if id(tensor) in kept:
            if layer is not None or _layer_around(kept[id(tensor)], adapted) is not None:
                raise ValueError(f"{name} is tied to {kept[id(tensor)]}: an adapter of either cannot be merged")
            continue
        kept[id(tensor)] = name
        is_adapted = layer is not None and name == f"{layer}.weight"
        yield name, _merged(tensor, adapted[str(layer)]) if is_adapted else tensor.detach()


def _adapted_layers(model: Any) -> tuple[Any, dict[str, Any]]:
    """The module of transformers, and its layers with an adapter by name."""
    if not has_adapter(model):
        return model, {}
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    base = base_model(model)
    adapted = {}
    for name, module in base.named_modules():
        if isinstance(module, AuxiliaryTrainingWrapper):
            raise ValueError(f"{name} is trained besides the adapter (modules_to_save): only plain LoRA can be merged")
        if isinstance(module, BaseTunerLayer):
            _check_plain(name, module)
            adapted[name] = module
    return base, adapted


def _check_plain(name: str, layer: Any) -> None:
    """Reject a layer whose adapters are not W + ΔW."""
    from peft.tuners.lora import LoraLayer

    plain = isinstance(layer, LoraLayer) and not any(
        layer.lora_variant.get(adapter) or layer.lora_bias.get(adapter) for adapter in layer.active_adapters
    )
    if not plain:
        raise ValueError(f"the adapter of {name} is not plain LoRA (W + ΔW) and cannot be merged")


def _layer_around(name: str, adapted: Mapping[str, Any]) -> str | None:
    """The name of the adapted layer that a tensor belongs to."""
    parts = name.split(".")
    parents = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((parent for parent in parents if parent in adapted), None)


@torch.no_grad()
def _merged(weight: torch.Tensor, layer: Any) -> torch.Tensor:
    adapters = [] if layer.disable_adapters else layer.active_adapters
    deltas = [layer.get_delta_weight(adapter) for adapter in adapters if adapter not in layer.merged_adapters]
    return sum(deltas, start=weight.detach())
