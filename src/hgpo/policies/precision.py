"""In which arithmetic a forward pass runs, the same for sampling and for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

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
