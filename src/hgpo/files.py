"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDERS_CAN_BE_FLUSHED = os.name != "nt"  # Windows opens no folder as a file


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary sibling to write to; it takes the place of `path` when the block ends without an error.

    Missing folders are made. Whoever reads `path` meanwhile sees the old content, never half of the new one; a power
    cut leaves one of them. `durable` leaves the new one: it waits until the disk has the name, too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        flush(partial)
        os.replace(partial, path)
        if durable:
            flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write `text` as UTF-8, whole or not at all; see `whole_file`."""
    with whole_file(path, durable=durable) as partial:
        partial.write_text(text, encoding="utf-8")


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    if path.is_dir():
        if _FOLDERS_CAN_BE_FLUSHED:
            _flush(os.open(path, os.O_RDONLY))
    else:
        _flush(os.open(path, os.O_RDWR))  # Windows flushes only what is open for writing


def flush_tree(folder: Path) -> None:
    """`flush` every file in a folder, and the folders' lists of names from the innermost outwards."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush(Path(root, name))
        flush(Path(root))


def flush_everything() -> None:
    """Wait until all that was written is on the disk: one call for thousands of files."""
    if hasattr(os, "sync"):
        os.sync()


def _flush(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
