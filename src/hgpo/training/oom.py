"""Freed memory goes back to the system.

The C library keeps what was freed in blocks of up to 32 MiB for later. Tensors of a language model's layers are such
blocks, in other sizes while it plays than while it learns and in every micro-batch, so many of the holes between them
fit nobody, and a process would grow from update to update.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch

from hgpo.training.batching import Sample, SharePrefixes, distinct, micro_batches, padded_tokens, row_tokens


def return_freed_memory() -> bool:
    """Give every free page that the C library holds back; False where it is not glibc, or had none.

    What is needed again is mapped again, page by page: worth it between the parts of a training, not for every tensor
    (docs/log.md has what that costs).
    """
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


# Going on after CUDA ran out of memory: the same work again, in smaller micro-batches.
#
# A backward pass that fails half way has added to some gradients already. So nothing of a failed attempt is kept: the
# caller's work is done anew from its beginning, with the smaller limit, which stays in force for the model.


logger = logging.getLogger(__name__)
Done = TypeVar("Done")
_HELP = (
    "shorten policy.max_prompt_tokens or policy.max_response_tokens, set training.gradient_checkpointing = true, lower "
    "training.max_logits, or train on a device with more memory"
)


class SampleTooLongError(ValueError):
    """Memory does not hold the forward and backward pass of one sample."""


@dataclass(frozen=True, slots=True)
class _Lowered:
    """The limit that a model is down to, and how often it was lowered."""

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
    """What `work` gives for a limit of micro-batches, which is lowered until memory holds them.

    Args:
        model: what computes; the limit is remembered with it.
        samples: what `work` cuts into `micro_batches`.
        max_tokens: the limit to begin with.
        work: is called with a limit, and again with a smaller one; it must not build on what it did before. It finds
            PyTorch's random numbers where they were.
        setting: its name, for what is said.
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
    """How often the limits of these were lowered so far; a model that is named twice counts once."""
    return sum(lowered.times for model, lowered in _lowered.items() if any(model is one for one in models))


def _lower(
    model: Any, samples: Sequence[Sample], limit: int, setting: str, reason: str, share_prefixes: SharePrefixes
) -> None:
    """Halve what the largest batch of several distinct rows takes; where there is none, nothing can be halved."""
    samples = [samples[row] for row in distinct(samples)[0]]
    width = row_tokens(model, share_prefixes, samples, limit)
    batches = micro_batches(samples, limit, width)
    several = [padded_tokens(samples, rows, width) for rows in batches if len(rows) > 1]
    if not several:
        longest = max(padded_tokens(samples, rows, width) for rows in batches)
        raise SampleTooLongError(f"memory does not hold a single sample of {longest:,} tokens ({reason}): {_HELP}")
    largest = max(several)
    smaller = largest // 2
    times = _lowered[model].times if model in _lowered else 0
    _lowered[model] = _Lowered(smaller, times + 1)
    logger.warning(
        "%s ran out of memory at %s tokens a micro-batch; going on with %s: set %s=%d",
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
