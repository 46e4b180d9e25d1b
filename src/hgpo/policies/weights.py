"""In which arithmetic a forward pass runs, the same for sampling and for training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch

from hgpo.policies.lora import base_model, has_adapter

Precision = Literal["auto", "float32", "bfloat16"]

_WIDE_ENOUGH = 256  # hidden size from which bfloat16 pays on a CPU: docs/decisions/013-bfloat16-on-cpus.md
_NATIVE = ("amx_bf16", "avx512_bf16")


def autocast(model: Any, precision: Precision) -> torch.autocast:
    """A context in which `model` computes in bfloat16 or in its weights' own type; see `computes_in_bfloat16`.

    Weights stay as they are: a float32 model that is trained under autocast keeps updates that bfloat16 weights would
    round away.
    """
    device = model.device
    low = computes_in_bfloat16(precision, device, model.config)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def computes_in_bfloat16(precision: Precision, device: torch.device, config: Any) -> bool:
    """What `precision` comes to for a model.

    "auto" is bfloat16 on CUDA, and on a CPU that multiplies in bfloat16 by itself where the model is wide enough to
    gain by it; else float32.

    Args:
        precision: the setting.
        device: where the model computes.
        config: the model's, of transformers.
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return True
    wide = config.get_text_config().hidden_size >= _WIDE_ENOUGH
    return bool(wide and device.type == "cpu" and cpu_has_bfloat16())


def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies in bfloat16 by itself; False where PyTorch is too old to tell."""
    capabilities: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    found = capabilities()
    return any(found.get(name, False) for name in _NATIVE)


# The weights of a trained module as plain transformers knows them, for samplers that hold a copy of their own.


def merged_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a causal language model, what adapters add to them included.

    Tied weights come once, under the name that the module lists first. A plain module's tensors are its own: not to be
    written to. With a LoRA adapter of peft, an adapted weight is W + ΔW, made when it is reached and in the wider of
    the two types. Base and adapter stay as they are: merging in place and unmerging would not give a bfloat16 base
    back.

    Args:
        model: one of transformers', or a `peft.PeftModel` around one.

    Raises:
        ValueError: an adapter does more than add a ΔW to a weight (DoRA, biases, whole modules trained beside it), or
            adds it to a weight that is tied to another.
    """
    base, adapted = _adapted_layers(model)
    kept: dict[int, str] = {}  # by what tied names share
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
    """The module as transformers knows it, and its layers with an adapter by name."""
    if not has_adapter(model):
        return model, {}
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    base = base_model(model)
    adapted = {}
    for name, module in base.named_modules():
        if isinstance(module, AuxiliaryTrainingWrapper):
            raise ValueError(f"{name} is trained beside the adapter (modules_to_save): only plain LoRA can be merged")
        if isinstance(module, BaseTunerLayer):
            _check_plain(name, module)
            adapted[name] = module
    return base, adapted


def _check_plain(name: str, layer: Any) -> None:
    """Refuse a layer whose adapters are not W + ΔW."""
    from peft.tuners.lora import LoraLayer

    plain = isinstance(layer, LoraLayer) and not any(
        layer.lora_variant.get(adapter) or layer.lora_bias.get(adapter) for adapter in layer.active_adapters
    )
    if not plain:
        raise ValueError(f"the adapter of {name} is no plain LoRA (W + ΔW), and nothing else can be merged")


def _layer_around(name: str, adapted: Mapping[str, Any]) -> str | None:
    """The adapted layer that a tensor belongs to."""
    parts = name.split(".")
    parents = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((parent for parent in parents if parent in adapted), None)


@torch.no_grad()
def _merged(weight: torch.Tensor, layer: Any) -> torch.Tensor:
    adapters = [] if layer.disable_adapters else layer.active_adapters
    deltas = [layer.get_delta_weight(adapter) for adapter in adapters if adapter not in layer.merged_adapters]
    return sum(deltas, start=weight.detach())
