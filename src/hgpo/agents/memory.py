"""What an agent remembers: the last K (observation, action) pairs of its own trajectory."""

from __future__ import annotations

from collections import deque


class Memory:
    """Keeps the `history_length` most recent pairs, oldest first.

    Example: with `history_length=2` after three steps, `recent()` is `[(o1, a1), (o2, a2)]`.
    """

    def __init__(self, history_length: int) -> None:
        if history_length < 0:
            raise ValueError(f"history_length must be 0 or more, not {history_length}")
        self._pairs: deque[tuple[str, str]] = deque(maxlen=history_length)

    def remember(self, observation: str, action: str) -> None:
        """Add the newest pair; the oldest falls out when there is no room."""
        self._pairs.append((observation, action))

    def recent(self) -> tuple[tuple[str, str], ...]:
        """The remembered pairs, oldest first."""
        return tuple(self._pairs)
