"""What the built-in trainer asks of a tracker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Settings = Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Shown:
    """The run as a tracker shows it.

    Example: `Shown("quickstart", Path("runs/quickstart"), {"training.updates": 70}, id=None, sent=0)`.

    Attributes:
        name: Its name.
        folder: Where it is written.
        settings: All of them by their dotted names; what is neither number, truth nor text is written as JSON.
        mode: Whether it may go to a server: wandb's word for it.
        id: Under which the tracker knows it from an earlier process; None: it is new.
        sent: The last update whose row the tracker has.
    """

    name: str
    folder: Path
    settings: Settings
    mode: str
    id: str | None
    sent: int


class Tracker(Protocol):
    """One tracker, opened. Whatever a method raises is said once, and the run goes on without this tracker."""

    id: str
    """Under which the tracker finds the run again."""

    look: str
    """The command that shows it."""

    def log(self, update: int, figures: Mapping[str, float]) -> None:
        """Take figures of one update by name; those of an evaluation come apart from those of the row."""

    def close(self, *, failed: bool) -> None:
        """Write down what is left."""


def as_texts(settings: Settings) -> dict[str, Any]:
    """The settings with every value as text."""
    return {name: str(value) for name, value in settings.items()}
