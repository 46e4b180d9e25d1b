"""One process at a time trains a run. The lock goes with the process that holds it, so a kill leaves none behind."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from io import FileIO
from pathlib import Path

from hgpo.files import try_lock

LOCK_FILE = ".lock"
_NOTE_BYTES = 200  # the byte behind them is the one that Windows locks (`hgpo.files`)

logger = logging.getLogger(__name__)


class RunInUseError(ValueError):
    """Another process trains the run; the message says which, and what to do."""


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
            if not try_lock(file.fileno()):
                raise RunInUseError(
                    f"{folder} is being trained by {_read_note(file)}. Wait until it ends, or stop it and continue "
                    f"with `hgpo train --resume {folder}`; `hgpo inspect` and `hgpo eval` work meanwhile"
                )
        except OSError as error:
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
