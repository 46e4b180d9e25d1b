"""CPU time of repeated calls."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds of repeated calls."""

    minimum: float
    median: float


def timed(function: Callable[[Any], Any], make_input: Callable[[], Any], repeats: int) -> tuple[Timing, Any]:
    """Time calls of `function` with a new `make_input()` each, which is not timed; return timing and last result.

    The garbage collector is off during calls. CPU time is that of the whole process, so use one thread.
    """
    seconds: list[float] = []
    result = None
    for _ in range(repeats):
        given = result = None  # frees what the last call left
        given = make_input()
        gc.collect()
        gc.disable()
        start = time.process_time()
        result = function(given)
        seconds.append(time.process_time() - start)
        gc.enable()
    return Timing(min(seconds), median(seconds)), result
