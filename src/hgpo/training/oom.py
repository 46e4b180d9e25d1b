"""Memory during training: free and used memory, returning freed memory, and smaller batches after out-of-memory.

The C library keeps freed blocks of up to 32 MiB for later. The tensors of a language model's layers are such blocks.
Their sizes differ between sampling and training and between micro-batches, so many free blocks cannot be reused, and
the process would grow with every update.

After CUDA ran out of memory, the same work runs again in smaller micro-batches. A backward pass that fails half-way has
added to some gradients already, so the work starts from its beginning, and the smaller limit stays in force.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from hgpo.training.batching import Sample, SharePrefixes, distinct, micro_batches, padded_tokens, row_tokens

GIB = 2**30
logger = logging.getLogger(__name__)
Done = TypeVar("Done")
_HELP = (
    "shorten policy.max_prompt_tokens or policy.max_response_tokens, set training.gradient_checkpointing = true, lower "
    "training.max_logits, or train on a device with more memory"
)


def return_freed_memory() -> bool:
    """Return the C library's free pages to the system; False if it is not glibc, or has none.

    Pages that are needed again have to be mapped again: call it between the phases of a training, not per tensor.
    """
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


class SampleTooLongError(ValueError):
    """The forward and backward pass of one sample does not fit into memory."""


@dataclass(frozen=True, slots=True)
class _Lowered:
    """The current limit of a model, and how often it was lowered."""

    tokens: int
    times: int


_lowered: WeakKeyDictionary[Any, _Lowered] = WeakKeyDictionary()


def within_memory(
    model: Any,
    samples: Sequence[Sample],
    max_tokens: int,
    work: Callable[[int], Done],
    setting: str = "training.micro_batch_tokens",
    share_prefixes: SharePrefixes = False,
) -> Done:
    """Run `work` with a micro-batch limit, lower the limit until memory suffices, and return the result.

    Args:
        model: the limit is stored per model.
        samples: what `work` cuts into `micro_batches`.
        max_tokens: the limit to begin with.
        work: is called with a limit, and again with a smaller one; it must start from the beginning each time.
            PyTorch's random state is restored before every call.
        setting: name of the limit's setting, for messages.
        share_prefixes: how `work` lays samples out (`hgpo.training.batching`).

    Raises:
        SampleTooLongError: a sample does not fit by itself.
    """
    if model.device.type == "cpu":
        return_freed_memory()
    while True:
        limit = min(max_tokens, _lowered[model].tokens) if model in _lowered else max_tokens
        random_state = _random_state(model.device)
        try:
            return work(limit)
        except torch.OutOfMemoryError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        # Outside of the block, so that the error no longer holds the tensors of the failed pass.
        _lower(model, samples, limit, setting, reason, share_prefixes)
        _restore(random_state, model.device)
        gc.collect()
        if model.device.type == "cuda":
            torch.cuda.empty_cache()


def times_lowered(*models: Any) -> int:
    """How often the limits of these models were lowered; duplicates count once."""
    return sum(lowered.times for model, lowered in _lowered.items() if any(model is one for one in models))


def _lower(
    model: Any, samples: Sequence[Sample], limit: int, setting: str, reason: str, share_prefixes: SharePrefixes
) -> None:
    """Halve the tokens of the largest batch with several distinct rows; raise an error if there is none."""
    samples = [samples[row] for row in distinct(samples)[0]]
    width = row_tokens(model, share_prefixes, samples, limit)
    batches = micro_batches(samples, limit, width)
    several = [padded_tokens(samples, rows, width) for rows in batches if len(rows) > 1]
    if not several:
        longest = max(padded_tokens(samples, rows, width) for rows in batches)
        raise SampleTooLongError(f"a single sample of {longest:,} tokens does not fit into memory ({reason}): {_HELP}")
    largest = max(several)
    smaller = largest // 2
    times = _lowered[model].times if model in _lowered else 0
    _lowered[model] = _Lowered(smaller, times + 1)
    logger.warning(
        "%s ran out of memory at %s tokens per micro-batch; continuing with %s: set %s=%d",
        model.device.type.upper(),
        f"{largest:,}",
        f"{smaller:,}",
        setting,
        smaller,
    )


def _random_state(device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Of the generators that dropout draws from."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _restore(state: tuple[torch.Tensor, torch.Tensor | None], device: torch.device) -> None:
    host, accelerator = state
    torch.set_rng_state(host)
    if accelerator is not None:
        torch.cuda.set_rng_state(accelerator, device)


def available_gib(device: torch.device, root: Path = Path("/")) -> float | None:
    """GiB that this process may use on `device`; on a CPU what it uses already is included.

    Args:
        device: whose memory.
        root: where `proc` and `sys` are mounted. The limit of a container (control groups version 2) holds, too.

    Returns:
        None where it is unknown (CPUs without Linux's /proc).
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / GIB
    if not (free := _field_bytes(root / "proc/meminfo", "MemAvailable:")):
        return None
    group = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # no such group, or "max" for no limit
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, max(0, limit - used + int(cached.get("inactive_file", 0))))  # cached files make way
    return (free + status_bytes("VmRSS", root)) / GIB


def peak_memory_gib(device: torch.device | str) -> float:
    """The peak so far in GiB: on CUDA of tensors on `device`, elsewhere of this process's resident memory."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / GIB
    if sys.platform == "win32":
        return float("nan")  # the standard library cannot tell
    if peak := status_bytes("VmHWM"):  # getrusage would start from the peak of the parent process
        return peak / GIB
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / GIB


def status_bytes(name: str, root: Path = Path("/")) -> int:
    """A field of /proc/self/status such as "VmRSS", in bytes; 0 where there is none."""
    return _field_bytes(root / "proc/self/status", f"{name}:")


def _field_bytes(file: Path, name: str) -> int:
    """The bytes in a line such as "MemAvailable:   17340596 kB"; 0 where there is none."""
    with suppress(OSError):
        for line in file.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0
