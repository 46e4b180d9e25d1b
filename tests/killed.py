"""A process that is killed at one of its calls to the file system, for tests of what it leaves behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

CALLS = ("mkdir", "link", "fsync", "rename", "replace", "unlink", "rmdir")


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def killed_at_each_call(work: Callable[[], object]) -> Iterator[str]:
    """Start `work` again and again, killed before its first call, its second and so on; yields what it was killed at.

    Whoever iterates makes the same state anew each time. What `work` still calls once it is dead, in a `finally` for
    example, has no effect either. Ends when `work` comes to its end.
    """
    number = 1
    while True:
        made: list[str] = []
        with _dying_at(number, made):
            try:
                work()
                return
            except Killed:
                pass
        yield f"call {number}, {made[-1]}"
        number += 1


def _dying_at(number: int, made: list[str]) -> Any:
    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if len(made) < number:
                made.append(f"os.{name}{arguments}")
            if len(made) >= number:
                raise Killed
            return real(*arguments, **options)

        return call

    return patch.multiple(os, **{name: counted(name) for name in CALLS})
