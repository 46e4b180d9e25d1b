"""Atomic writes of files and folders, and cleaning up after killed processes.

Content is written to `.<name>.<process>.partial` in the same folder, locked by the writing process, and then renamed.
The lock ends with the process, so the next writer can recognise and delete files that a killed process left.
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

_POSIX = os.name != "nt"  # Windows cannot open a folder as a file or rename an open file
_LOCKED_ELSEWHERE = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK)

if sys.platform == "win32":
    import msvcrt

    LOCKED_BYTE = 200
    """Windows prevents other processes from reading a locked byte, so it is after the content of a lock file."""

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder for this process until it is closed; False if another process has locked it.

    Raises:
        OSError: The file system does not support locks.
    """
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno in _LOCKED_ELSEWHERE:
            return False
        raise
    return True


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary file next to `path` to write to; replaces `path` when the block ends without an error.

    Creates missing folders. Other processes, also after a power failure, see the old or the new content of `path`, and
    never a part of it. `durable` waits until the new content and its name are on disk. A disk error names `path`.
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
    """A temporary folder next to `path`; deleted with its contents when the block ends."""
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
def exclusive_path(path: Path) -> Iterator[None]:
    """Reserve a file or folder, which need not exist, inside the block, by a locked file `.<name>.lock` next to it.

    Raises:
        FileExistsError: Another process has reserved it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, reserved = path.with_name(f".{path.name}.lock"), False
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The process that had reserved the path may have deleted the file after it was opened here.
        reserved = _claim(descriptor) and (not _POSIX or os.fstat(descriptor).st_nlink > 0)
        if not reserved:
            raise FileExistsError(f"another process is writing to {path}; wait until it has ended")
        yield
    finally:
        if reserved and _POSIX:
            lock.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Inside the block, errors of the disk that name no file (such as failed writes) get the name `path`."""
    try:
        yield
    except shutil.Error as error:  # a list of errors of many files
        raise OSError(f"{path}: {error.args[0][0][-1]}") from error
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(path)) from error


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _claim(descriptor: int) -> bool:
    """As `try_lock`, but True on a file system without locks, on which left files are never deleted."""
    try:
        return try_lock(descriptor)
    except OSError:
        return True


def _remove_left_over(path: Path) -> None:
    """Delete partial files for `path` that ended processes left."""
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
    """Write `text` as UTF-8 atomically; see `whole_file`."""
    with whole_file(path, durable=durable) as partial:
        partial.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Check before a long computation that `path` can be written.

    Raises:
        OSError: `path` cannot be written; the message names it.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = _partial(path)
        os.close(os.open(trial, os.O_RDWR | os.O_CREAT, 0o666))
        trial.unlink()


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    if path.is_dir() and not _POSIX:
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only writable files
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """`flush` every file in a folder, then the folders' lists of names, innermost first."""
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush(Path(root, name))
        flush(Path(root))


def publish(partial: Path, final: Path) -> None:
    """Replace the folder `final` by `partial` in the same parent; both survive a power failure whole or not at all."""
    flush_tree(partial)
    old = renamed_to_delete(final) if os.path.lexists(final) else None
    partial.rename(final)
    flush(final.parent)
    if old is not None:
        delete_folder(old)


def renamed_to_delete(path: Path) -> Path:
    """Rename a folder to `.<name>.deleted`, so that a process that dies while deleting it leaves no half of it."""
    hidden = path.with_name(f".{path.name}.deleted")
    delete_folder(hidden)  # left by a process that died while deleting
    return path.rename(hidden)


def delete_folder(path: Path) -> None:
    """Delete a folder, if it exists, with its contents; of a link to a folder, the link alone."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def flush_everything() -> None:
    """Wait until all written data of the system is on disk: one call for thousands of files."""
    if hasattr(os, "sync"):
        os.sync()
