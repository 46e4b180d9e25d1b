"""In which arithmetic a forward pass runs, the same for sampling and for training."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """A context in which the model computes in bfloat16 or in its weights' own type.

    "auto" is bfloat16 on CUDA and float32 elsewhere. Weights stay as they are: a float32 model that is trained under
    autocast keeps updates that bfloat16 weights would round away.
    """
    low = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)
