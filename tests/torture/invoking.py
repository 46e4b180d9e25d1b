"""The `hgpo` command in a process of its own, started in milliseconds: forked from one that has imported everything."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"
_NO_SUCH_STATUS = 70  # of a process whose command ended with an uncaught exception
_MOST_SAID = 1 << 20  # bytes
PATIENCE = 60.0
"""Seconds after which a command that takes two hangs."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a command ended. `status` is negative where a signal ended it, None where it hung and was ended."""

    status: int | None
    out: str
    err: str

    @property
    def text(self) -> str:
        """Everything it said."""
        return self.out + self.err

    @property
    def fault(self) -> str:
        """Why this can be right in no case; empty if it may be."""
        if self.status is None:
            return f"hung: {self.text[-500:]}"
        if TRACEBACK in self.text:
            return f"traceback: {self.err[-1500:]}"
        if self.status not in (0, 1, 2, 130, 143, 141):
            return f"status {self.status}: {self.text[-500:]}"
        return ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the process may not exceed. Example: `Limits(file_bytes=10_000)` is a disk that is full after that."""

    file_bytes: int | None = None
    kill_after: float | None = None


NO_LIMITS = Limits()


def invoke(
    arguments: Sequence[str | Path], cwd: Path, limits: Limits = NO_LIMITS, prepare: Callable[[], object] = list
) -> Invocation:
    """Run one command in `cwd`. `prepare` is called first, in its process."""
    (out, out_end), (err, err_end) = _pipe(), _pipe()
    child = start(arguments, cwd, limits, prepare, out_end, err_end)
    os.close(out_end)
    os.close(err_end)
    status = _wait(child, limits.kill_after)
    return Invocation(status, _read(out), _read(err))


def _pipe() -> tuple[int, int]:
    """Reading and writing end of a pipe that holds all that a command says: a file would be subject to the limits."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _MOST_SAID)
    return reading, writing


def start(
    arguments: Sequence[str | Path],
    cwd: Path,
    limits: Limits = NO_LIMITS,
    prepare: Callable[[], object] = list,
    out: int | None = None,
    err: int | None = None,
) -> int:
    """Start a command and return its process id; its output goes to the descriptors, or nowhere."""
    child = os.fork()
    if child:
        return child
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number, descriptor in ((0, nowhere), (1, out), (2, err)):
            os.dup2(nowhere if descriptor is None else descriptor, number)
        status = _in_child([str(argument) for argument in arguments], cwd, limits, prepare)
    except BaseException:  # what the interpreter would do, without the parent's own exit handlers
        os.write(2, traceback.format_exc().encode())
        status = _NO_SUCH_STATUS
    os._exit(status)


def _in_child(arguments: list[str], cwd: Path, limits: Limits, prepare: Callable[[], object]) -> int:
    import sys

    os.setsid()
    os.chdir(cwd)
    os.environ["COLUMNS"] = "200"  # messages are not folded
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    if limits.file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    prepare()
    from hgpo.cli.main import main

    try:
        status = main(arguments)
    except SystemExit as end:  # argparse
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _wait(child: int, kill_after: float | None) -> int | None:
    """The status; a child is killed after `kill_after` seconds, or after `PATIENCE`, which is a hang."""
    due = time.monotonic() + (PATIENCE if kill_after is None else kill_after)
    pause = 0.002
    while time.monotonic() < due:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)
    kill(child)
    return None if kill_after is None else -signal.SIGKILL


def kill(child: int) -> None:
    """Kill it and whatever it started, and wait for its end."""
    for send in (os.killpg, os.kill):  # it may not have made its group yet
        try:
            send(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(child, 0)


def _read(descriptor: int) -> str:
    """What was written to a pipe; of a process that lives on, what it has written by now."""
    os.set_blocking(descriptor, False)
    parts = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    os.close(descriptor)
    return b"".join(parts).decode("utf-8", errors="replace")
