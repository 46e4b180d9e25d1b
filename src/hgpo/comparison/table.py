"""What stands in the table: a row per entry, a column per figure that anybody has, differences to the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hgpo.comparison.differences import Difference, difference, unlike
from hgpo.comparison.entries import Entry
from hgpo.evaluation import Rate
from hgpo.runs.panel import seeds_text
from hgpo.visible import visible

Cell: TypeAlias = Rate | float | int | str | None
Kind = Literal["text", "rate", "score", "length", "count", "amount"]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of every entry; texts are fit for a terminal.

    Example: `Column("score", "score", "score", (0.5, None))`.

    Attributes:
        name: What programs call it.
        heading: What people read.
        kind: How its cells are shown.
        cells: One per entry, None where it is not known.
        of_task_type: Whether it is success on one type of task.
    """

    name: str
    heading: str
    kind: Kind
    cells: tuple[Cell, ...]
    of_task_type: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What concerns one entry as a whole.

    Example: `Row("grpo", Difference(Rate(-0.08, -0.16, 0.0, 256)), notes=(1,))`.

    Attributes:
        label: What the entry is called.
        difference: To the baseline; None for the baseline itself.
        notes: Numbers of its footnotes, from 1.
    """

    label: str
    difference: Difference | None
    notes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole table. Example: `compare(read_entries(["runs/a", "runs/b"])).rows[1].difference`.

    Attributes:
        caption: What the figures are, in a sentence.
        baseline: Which row the others are compared with.
        columns: In their order; cells in the order of the rows.
        rows: One per entry.
        footnotes: What rows refer to by number, the first is 1.
    """

    caption: str
    baseline: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...] = ()

    @property
    def baseline_label(self) -> str:
        """What the baseline is called."""
        return self.rows[self.baseline].label


def compare(entries: Sequence[Entry], baseline: int = 0) -> Comparison:
    """The table of the entries; differences are to the entry at the place `baseline`."""
    first = entries[baseline]
    unlikes = [unlike(first, entry) for entry in entries]
    footnotes = tuple(dict.fromkeys(note for notes in unlikes for note in notes))
    rows = tuple(
        Row(
            entry.label,
            None if place == baseline else difference(first, entry),
            tuple(footnotes.index(note) + 1 for note in notes),
        )
        for place, (entry, notes) in enumerate(zip(entries, unlikes, strict=True))
    )
    return Comparison(_caption(first), baseline, _columns(entries), rows, footnotes)


def baseline_place(entries: Sequence[Entry], wanted: str | None) -> int:
    """Where the baseline stands, from 0.

    Args:
        entries: What is compared.
        wanted: A label, or the number of an entry, from 1; None: the first entry.

    Raises:
        ValueError: There is no such entry.
    """
    if wanted is None:
        return 0
    labels = [entry.label for entry in entries]
    if visible(wanted) in labels:
        return labels.index(visible(wanted))
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted) <= len(labels):
        return int(wanted) - 1
    raise ValueError(f"--baseline {wanted}: no such entry; take 1 to {len(labels)}, or one of: {', '.join(labels)}")


def _caption(baseline: Entry) -> str:
    panel = baseline.panel
    environment = f" in {visible(baseline.environment, 60)}" if baseline.environment else ""
    return (
        f"Success in per cent (95 % interval). Baseline {baseline.label}: {panel.success.tasks:,} tasks of "
        f"{visible(panel.split, 60)}{environment}, temperature {panel.temperature:g}, {seeds_text(panel.seeds)}"
    )


def _columns(entries: Sequence[Entry]) -> tuple[Column, ...]:
    """Columns in which anybody has a figure."""
    columns = [
        *(_column(entries, name, name, "text", text) for name, text in _TEXTS.items()),
        _column(entries, "success", "success", "rate", lambda entry: entry.panel.success),
        *_task_types(entries),
        *(_column(entries, name, heading, kind, figure) for name, heading, kind, figure in _FIGURES),
    ]
    return tuple(column for column in columns if any(cell is not None for cell in column.cells))


def _column(entries: Sequence[Entry], name: str, heading: str, kind: Kind, cell: Callable[[Entry], Cell]) -> Column:
    return Column(name, heading, kind, tuple(cell(entry) for entry in entries))


def _task_types(entries: Sequence[Entry]) -> list[Column]:
    """Success on each type of task that anybody played, in the order in which the entries name them."""
    kinds = dict.fromkeys(kind for entry in entries for kind in entry.panel.by_task_type)
    return [
        Column(
            f"success/{visible(kind)}",
            visible(kind, 60),
            "rate",
            tuple(entry.panel.by_task_type.get(kind) for entry in entries),
            of_task_type=True,
        )
        for kind in kinds
    ]


def _text(value: str | None) -> str | None:
    return None if value is None else visible(value, 60)


def _per_episode(entry: Entry, total: float | None) -> float | None:
    """What one episode that was played to its end took, failed ones included in the total."""
    episodes = entry.stored.episodes_played
    return total / episodes if total is not None and episodes else None


def _tokens(entry: Entry) -> float | None:
    tokens = entry.stored.tokens
    return None if tokens is None else _per_episode(entry, tokens.total)


_TEXTS: dict[str, Callable[[Entry], Cell]] = {
    "evaluation": lambda entry: _text(entry.name),
    "model": lambda entry: _text(entry.stored.model),
    "agent": lambda entry: _text(entry.stored.agent),
}
_FIGURES: tuple[tuple[str, str, Kind, Callable[[Entry], Cell]], ...] = (
    ("score", "score", "score", lambda entry: entry.panel.score),
    ("episode_length", "steps per episode", "length", lambda entry: entry.panel.episode_length),
    ("episodes", "episodes", "count", lambda entry: entry.stored.episodes_played),
    ("failed", "failed", "count", lambda entry: entry.stored.failed),
    ("tokens_per_episode", "tokens per episode", "count", _tokens),
    ("cost_per_episode", "cost per episode", "amount", lambda entry: _per_episode(entry, entry.stored.cost)),
    ("seconds_per_episode", "seconds per episode", "amount", lambda entry: _per_episode(entry, entry.stored.seconds)),
)
