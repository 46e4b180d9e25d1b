"""Progress of a run in the terminal: a progress bar, and a permanent line for some of the updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hgpo.utils.text import visible_lines

LINES_PER_RUN = 15


class Reporter:
    """Prints lines and shows progress bars; without a terminal, a progress line every 15 seconds replaces a bar."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=False, quiet=quiet)

    def say(self, text: str) -> None:
        """Print a line; it may contain text of an environment or a server."""
        self.console.print(visible_lines(text), highlight=False, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning on standard error, even if `quiet`."""
        Console(stderr=True).print(visible_lines(text), highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[..., None]]:
        """A progress bar for work of known size; yields the callback `(done, total, note="")`."""
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as progress:
            bar, printed = progress.add_task(what, total=None, note=""), time.monotonic()

            def count(done: int, total: int, note: str = "") -> None:
                nonlocal printed
                progress.update(bar, completed=done, total=total, note=note)
                if not self.console.is_terminal and time.monotonic() - printed > 15:
                    printed = time.monotonic()
                    self.say(f"  {what}: {done}/{total} {note}".rstrip())

            yield count


def duration(seconds: float) -> str:
    """An approximate duration in one unit. Example: `duration(130)` is "2 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def update_line(row: Mapping[str, Any], updates: int, left: float | None = None) -> str:
    """The main figures of an update in one line, with the remaining time if `left` (seconds) is known."""
    levels = [row[key] for key in sorted(row, key=lambda key: (len(key), key)) if key.startswith("group_size_")]
    kl = f"KL {row['kl']:.4f}  " if "kl" in row else ""  # not computed if its coefficient is 0
    groups = " groups " + "/".join(f"{size:.0f}" for size in levels) if levels else ""
    return (
        f"update {row['update']:>4}/{updates}  success {row['success']:.2f}  reward {row['reward']:6.2f}  "
        f"{kl}clip {row.get('clip_fraction', math.nan):.3f}{groups}  "
        f"{row['tokens_per_second']:,.0f} tokens/s{f'  {duration(left)} left' if left else ''}"
    )


def worth_a_line(update: int, updates: int) -> bool:
    """Whether an update's line is printed: the first, the last and about `LINES_PER_RUN` between."""
    every = max(1, updates // LINES_PER_RUN)
    return update in (1, updates) or update % every == 0
