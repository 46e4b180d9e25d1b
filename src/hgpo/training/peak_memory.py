"""How much memory training takes at most."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_GIB = 2**30
_RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_memory_gib(device: torch.device | str) -> float:
    """On CUDA the most that tensors have held on `device`; elsewhere the most this process has had resident. In GiB."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _GIB
    return _most_resident_bytes() / _GIB


def _most_resident_bytes() -> float:
    if sys.platform == "win32":
        return float("nan")  # the standard library does not know it there, and one figure is no reason to stop
    try:  # what getrusage says goes on with what the starting process had, where this one is younger
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT
