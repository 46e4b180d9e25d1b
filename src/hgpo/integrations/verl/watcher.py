"""A thread that looks at a run from beside it while a block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Watcher(ABC):
    """Starts the thread with the block and ends it with it. A subclass says in `_watch` what is done until `_over`.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _watch(self) -> None:
        """Look until `_over` is set; runs in the thread."""
