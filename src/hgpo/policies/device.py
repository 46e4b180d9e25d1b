"""Which device a model is put on."""

from __future__ import annotations

import torch


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU.

    Raises:
        ValueError: PyTorch has no such device here, or the device has no float64, which sampling computes in.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # the latter where PyTorch was built without CUDA
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f'PyTorch has no device "{name}" here ({reason}); take "auto" or "cpu"') from error
    if device.type == "mps":
        raise ValueError(f'device "{name}" has no float64, which sampling computes in; take "cpu"')
    return device
