"""CPU time and memory of repeated calls."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds of repeated calls, and the extra memory of the first one in bytes (None where it cannot be read)."""

    minimum: float
    median: float
    memory: int | None


def timed(function: Callable[[Any], Any], make_input: Callable[[], Any], repeats: int) -> tuple[Timing, Any]:
    """Time calls of `function` with a new `make_input()` each, which is not timed; return timing and last result.

    The garbage collector is off during calls. CPU time is that of the whole process, so use one thread.
    """
    seconds: list[float] = []
    memory: int | None = None
    result = None
    for repeat in range(repeats):
        given = result = None  # frees what the last call left
        given = make_input()
        gc.collect()
        before = _status_bytes("VmRSS") if repeat == 0 and _reset_peak() else None
        gc.disable()
        start = time.process_time()
        result = function(given)
        seconds.append(time.process_time() - start)
        gc.enable()
        if before is not None:
            memory = _status_bytes("VmHWM") - before
    return Timing(min(seconds), median(seconds), memory), result


def _reset_peak() -> bool:
    """Return freed memory to the system and reset Linux's peak of the resident size; False where this is impossible."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):
        return False
    return True


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise KeyError(key)
