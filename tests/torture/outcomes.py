"""What came of a case, and the counts of a theme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, Protocol

Kind = Literal["same", "error", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case ended.

    Attributes:
        kind: "same": nothing came of the damage; "error": it was refused, and named; "failed": anything else.
        case: what was done, in words from which it can be done again.
        detail: of a failure, what was seen.

    Example: `Outcome("error", "eval, metrics.jsonl emptied")`.
    """

    kind: Kind
    case: str
    detail: str = ""


class Theme(Protocol):
    """Cases without an end, drawn from `rng`, in a folder of the theme's own; whoever asks decides how many."""

    def __call__(self, folder: Path, rng: Random) -> Iterator[Outcome]:
        """Yield the outcomes as they come."""


@dataclass(slots=True)
class Tally:
    """The counts of one theme, and its failures in full. Example: `Tally("kills").add(Outcome("same", "eval"))`."""

    theme: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one more."""
        self.counts[outcome.kind] += 1
        if outcome.kind == "failed":
            self.failures.append(outcome)

    @property
    def tried(self) -> int:
        """All cases."""
        return self.counts.total()


def merged(tallies: Sequence[Tally]) -> Tally:
    """The counts that several processes made of one theme, as one."""
    whole = Tally(tallies[0].theme)
    for tally in tallies:
        whole.counts += tally.counts
        whole.failures += tally.failures
    return whole
