"""Freed memory goes back to the system.

The C library keeps what was freed in blocks of up to 32 MiB for later, and raises that bound as larger blocks come and
go. Tensors of a language model's layers are such blocks, in ever other sizes, so the holes between them fit nobody, and
a process grows from update to update. Blocks of a mebibyte are mapped one by one here: what is freed is gone.
"""

from __future__ import annotations

import ctypes
import sys

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h
_LARGE = 2**20


def return_large_blocks() -> bool:
    """Have every block of a mebibyte or more returned as soon as it is free; False where the C library is not glibc.

    Each such block is mapped anew, page by page, which takes time: docs/log.md has what was measured.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(ctypes.c_int(_MMAP_THRESHOLD), ctypes.c_int(_LARGE)))
