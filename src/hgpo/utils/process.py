"""The process of a command: output to a pipe that may be closed, and handling of SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO, cast


class _PipeSafeStream:
    """A text stream that discards output after its pipe was closed.

    Rich ends the program when a pipe closes, and plain writes raise an error; either would end a training in
    `hgpo train … | head`.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """Wrap a stream; None (`sys.stdout` if it was closed at the process's start) discards all output."""
        self._stream = open(os.devnull, "w", encoding="utf-8") if stream is None else stream  # noqa: SIM115

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._redirect_to_devnull()
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._redirect_to_devnull()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _redirect_to_devnull(self) -> None:
        """Replace the underlying file, because Python writes the buffered output to it again, at the latest at exit."""
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self._stream.fileno())
        os.close(devnull)


@contextmanager
def pipe_safe_output() -> Iterator[None]:
    """Standard output and error that tolerate closed pipes and characters that the terminal cannot encode."""
    before = sys.stdout, sys.stderr
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal cannot encode must not fail
    sys.stdout, sys.stderr = (cast(TextIO, _PipeSafeStream(stream)) for stream in before)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        sys.stdout, sys.stderr = before


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception: it unwinds like Ctrl-C, so that files stay complete and child processes end."""


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, unless it has a handler (Ray sets one when it is imported)."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def terminate(number: int, _: FrameType | None) -> None:
        if os.getpid() == process:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)  # a forked worker ends immediately, as without this handler
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
