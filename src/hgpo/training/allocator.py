"""Freed memory goes back to the system.

The C library keeps what was freed in blocks of up to 32 MiB for later. Tensors of a language model's layers are such
blocks, in other sizes while it plays than while it learns and in every micro-batch, so many of the holes between them
fit nobody, and a process would grow from update to update.
"""

from __future__ import annotations

import ctypes
import sys


def return_freed_memory() -> bool:
    """Give every free page that the C library holds back; False where it is not glibc, or had none.

    What is needed again is mapped again, page by page: worth it between the parts of a training, not for every tensor
    (docs/log.md has what that costs).
    """
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
