"""One process at a time trains a run. The lock goes with the process that holds it, so a kill leaves none behind."""

from __future__ import annotations

import errno
import logging
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from io import FileIO
from pathlib import Path

LOCK_FILE = ".lock"
_HELD_ELSEWHERE = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK)
_NOTE_BYTES = 200

logger = logging.getLogger(__name__)


class RunInUseError(ValueError):
    """Another process trains the run; the message says which, and what to do."""


if sys.platform == "win32":
    import msvcrt

    def _lock(file: FileIO) -> None:
        """Windows lets nobody else read a locked byte, so it is one behind the note."""
        file.seek(_NOTE_BYTES)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: FileIO) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the run in `folder` for the block; others may read it meanwhile.

    The file stays afterwards and means nothing: to delete it would take it from whoever has just opened it.

    Raises:
        RunInUseError: another process holds it.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:  # a buffer would read on, over the byte that is locked
        try:
            _lock(file)
        except OSError as error:
            if error.errno in _HELD_ELSEWHERE:
                raise RunInUseError(
                    f"{folder} is being trained by {_read_note(file)}. Wait until it ends, or stop it and continue "
                    f"with `hgpo train --resume {folder}`; `hgpo inspect` and `hgpo eval` work meanwhile"
                ) from error
            logger.warning(
                "%s: this file system has no locks (%s); take care that no other process trains it", folder, error
            )
        _write_note(file)
        yield


def _write_note(file: FileIO) -> None:
    note = f"process {os.getpid()} on {platform.node()} since {datetime.now():%Y-%m-%d %H:%M}"
    file.seek(0)
    file.write(note.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES))  # of one length, so that nothing older shows behind it


def _read_note(file: FileIO) -> str:
    file.seek(0)
    return file.read(_NOTE_BYTES).decode(errors="replace").strip() or "another process"
