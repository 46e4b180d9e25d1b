"""A command's process and its surroundings: output whose reader may go away, and the signal that asks it to end."""

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
    """A text stream whose reader may go away: from then on what is written is discarded, and no writer is disturbed.

    Rich ends the program when a pipe closes, and plain writes raise an error; either would end hours of training for
    `hgpo train … | head`. All of them write through `sys.stdout` and `sys.stderr`.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """None is what Python has in place of a stream that was closed before it began."""
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
        """Replace the file below, for what is buffered is written to it once more, at the latest when Python ends."""
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self._stream.fileno())
        os.close(devnull)


@contextmanager
def pipe_safe_output() -> Iterator[None]:
    """Standard output and error that outlive their readers and take any character (error escapes what it cannot)."""
    before = sys.stdout, sys.stderr
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a dash that the terminal cannot show is no reason to fail
    sys.stdout, sys.stderr = (cast(TextIO, _PipeSafeStream(stream)) for stream in before)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        sys.stdout, sys.stderr = before


class Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds as Ctrl-C does: files are left whole and what was started is ended."""


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, unless somebody else handles it already (Ray does from its import on)."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def terminate(number: int, _: FrameType | None) -> None:
        if os.getpid() == process:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)  # a forked worker ends at once, as it would have without this
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
