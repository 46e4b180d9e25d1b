"""How much memory training takes at most."""

from __future__ import annotations

import resource
import sys

import torch

_GIB = 2**30
_RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_memory_gib(device: torch.device | str) -> float:
    """On CUDA the most that tensors have held on `device`; elsewhere the most this process has had resident. In GiB."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT / _GIB
