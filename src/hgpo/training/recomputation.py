"""Gradient checkpointing: layers keep their inputs alone, and compute the rest again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer


@contextmanager
def recomputed_layers(model: Any) -> Iterator[None]:
    """In the block, a forward pass with gradients keeps the inputs of the model's layers and nothing inside of them.

    transformers does so in training mode alone, which would switch dropout on; here the layers are told one by one, and
    what is inside of them stays in evaluation mode. Outside of the block nothing differs: a layer that recomputes takes
    no key-value cache, which sampling needs.

    Raises:
        ValueError: the model has no layers that can be recomputed.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"training.gradient_checkpointing: {type(model).__name__} has no layers that can be recomputed; set it to "
            "false, and lower training.micro_batch_tokens instead"
        )
    if not layers[0].gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in layers:
        layer.training = True  # its own mark, not that of the modules inside
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
