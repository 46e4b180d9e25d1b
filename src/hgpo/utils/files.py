"""Files and folders that appear whole or not at all, and what a killed process leaves of them.

What is being written has a name of its own beside its place, `.<name>.<process>.partial`, and is locked by the process
that writes it. The lock goes with the process, so whoever writes to that place next knows what is left over, and
deletes it.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POSIX = os.name != "nt"  # Windows opens no folder as a file, and renames no file that is open
_HELD_ELSEWHERE = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK)

if sys.platform == "win32":
    import msvcrt

    LOCKED_BYTE = 200
    """Windows lets nobody else read a locked byte, so it is one behind whatever a file has to say."""

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock(descriptor: int) -> bool:
    """Lock an open file, or a folder, for this process, until it is closed; False if another one holds it.

    Raises:
        OSError: this file system has no locks.
    """
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _HELD_ELSEWHERE:
            return False
        raise
    return True


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary sibling to write to; it takes the place of `path` when the block ends without an error.

    Missing folders are made. Whoever reads `path` meanwhile sees the old content, never half of the new one; a power
    cut leaves one of them. `durable` leaves the new one: it waits until the disk has the name, too. An error of the
    disk names `path`.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(path)
        partial = _partial(path)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _claim(descriptor)
            yield partial
            flush(partial)
            if not _POSIX:
                os.close(descriptor)
                descriptor = -1
            os.replace(partial, path)
            if durable:
                flush(path.parent)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
            partial.unlink(missing_ok=True)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` to write a folder in; it goes, with what is still in it, when the block ends."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(path)
        partial = _partial(path)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        descriptor = os.open(partial, os.O_RDONLY) if _POSIX else -1
        try:
            if descriptor >= 0:
                _claim(descriptor)
            yield partial
        finally:
            if descriptor >= 0:
                os.close(descriptor)
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Hold a folder that is there for the block; where folders or locks cannot be had, it is not held.

    Raises:
        FileExistsError: another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY) if _POSIX else -1
    try:
        if descriptor >= 0 and not _claim(descriptor):
            raise FileExistsError(f"another process is writing to {folder}; wait until it has ended")
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """In the block, an error of the disk that names no file names `path`: a failed write does not know its file."""
    try:
        yield
    except shutil.Error as error:  # of many files at once, as a list
        raise OSError(f"{path}: {error.args[0][0][-1]}") from error
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(path)) from error


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _claim(descriptor: int) -> bool:
    """`try_lock`; on a file system without locks nothing is held, and what is left over there stays."""
    try:
        return try_lock(descriptor)
    except OSError:
        return True


def _remove_left_over(path: Path) -> None:
    """Delete what processes that are gone were writing in the place of `path`."""
    for partial in list(path.parent.glob(f".{glob.escape(path.name)}.*.partial")):
        if partial != _partial(path) and _is_left_over(partial):
            shutil.rmtree(partial, ignore_errors=True) if partial.is_dir() else partial.unlink(missing_ok=True)


def _is_left_over(partial: Path) -> bool:
    try:
        descriptor = os.open(partial, os.O_RDONLY if partial.is_dir() else os.O_RDWR)
    except OSError:
        return False
    try:
        return try_lock(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, durable: bool = False) -> None:
    """Write `text` as UTF-8, whole or not at all; see `whole_file`."""
    with whole_file(path, durable=durable) as partial:
        partial.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written to, before hours are spent on what is to stand there.

    Raises:
        OSError: names `path`.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = _partial(path)
        os.close(os.open(trial, os.O_RDWR | os.O_CREAT, 0o666))
        trial.unlink()


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    if path.is_dir():
        if _POSIX:
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
