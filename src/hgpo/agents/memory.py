"""What an agent remembers: the last K steps of its own trajectory, or all of them."""

from __future__ import annotations

from collections import deque


class Memory:
    """Keeps the `history_length` most recent steps, oldest first; None keeps all.

    Example: with `history_length=2` after three steps, `recent()` is `[(o1, a1), (o2, a2)]`.
    """

    def __init__(self, history_length: int | None) -> None:
        if history_length is not None and history_length < 0:
            raise ValueError(f"history_length must be 0 or more, not {history_length}")
        self._pairs: deque[tuple[str, str]] = deque(maxlen=history_length)
        self._responses: deque[str] = deque(maxlen=history_length)

    def remember(self, observation: str, action: str, response: str) -> None:
        """Add the newest step; the oldest falls out when there is no room.

        Args:
            observation: what the environment had said.
            action: what was done.
            response: all that the model had answered; empty where nobody was asked.
        """
        self._pairs.append((observation, action))
        self._responses.append(response)

    def recent(self) -> tuple[tuple[str, str], ...]:
        """Observation and action of the remembered steps, oldest first."""
        return tuple(self._pairs)

    def responses(self) -> tuple[str, ...]:
        """The responses of the remembered steps, oldest first."""
        return tuple(self._responses)
