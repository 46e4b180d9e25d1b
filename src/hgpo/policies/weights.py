"""The weights of a trained module as plain transformers knows them, for samplers that hold a copy of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hgpo.policies.adapters import base_model, has_adapter


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
