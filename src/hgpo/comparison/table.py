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
Kind = Literal["text", "rate", "share", "score", "length", "count", "amount"]
Block = Literal["panel", "task type", "trial", "effort"]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of every entry; texts are fit for a terminal.

    Example: `Column("score", "score", "score", (0.5, None))`.

    Attributes:
        name: What programs call it.
        heading: What people read.
        kind: How its cells are shown.
        cells: One per entry, None where it is not known.
        block: What it is about, so with which others it stands together where not all have room side by side.
    """

    name: str
    heading: str
    kind: Kind
    cells: tuple[Cell, ...]
    block: Block = "panel"


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
    figures = [*_PLAYED, *_task_types(entries), *_trials(entries), *_PLAYED_HOW, *_EFFORT]
    columns = [figure.column(entries) for figure in figures]
    return tuple(column for column in columns if any(cell is not None for cell in column.cells))


@dataclass(frozen=True, slots=True)
class _Figure:
    """What a column has of each entry; its other attributes are those of `Column`.

    Example: `_Figure("score", "score", "score", lambda entry: entry.panel.score)`.
    """

    name: str
    heading: str
    kind: Kind
    of: Callable[[Entry], Cell]
    block: Block = "panel"

    def column(self, entries: Sequence[Entry]) -> Column:
        return Column(self.name, self.heading, self.kind, tuple(self.of(entry) for entry in entries), self.block)


def _task_types(entries: Sequence[Entry]) -> list[_Figure]:
    """Success on each type of task that anybody played, in the order in which the entries name them."""
    return [_on_type(kind) for kind in dict.fromkeys(kind for entry in entries for kind in entry.panel.by_task_type)]


def _on_type(kind: str) -> _Figure:
    name, heading = f"success/{visible(kind)}", visible(kind, 60)
    return _Figure(name, heading, "rate", lambda entry: entry.panel.by_task_type.get(kind), "task type")


def _trials(entries: Sequence[Entry]) -> list[_Figure]:
    """Success after each of the most trials that anybody had at a task."""
    most = max(len(entry.stored.success_by_trial or ()) for entry in entries)
    return [_after_trial(trial) for trial in range(1, most + 1)]


def _after_trial(trial: int) -> _Figure:
    def success(entry: Entry) -> float | None:
        by_trial = entry.stored.success_by_trial or ()
        return by_trial[trial - 1] if trial <= len(by_trial) else None

    return _Figure(f"success_after_trial_{trial}", f"success after trial {trial}", "share", success, "trial")


def _text(value: str | None) -> str | None:
    return None if value is None else visible(value, 60)


def _per_episode(entry: Entry, total: float | None) -> float | None:
    """What one episode that was played to its end took, failed ones included in the total."""
    episodes = entry.stored.episodes_played
    return total / episodes if total is not None and episodes else None


def _tokens(entry: Entry) -> float | None:
    tokens = entry.stored.tokens
    return None if tokens is None else _per_episode(entry, tokens.total)


def _requests(entry: Entry) -> float | None:
    return _per_episode(entry, entry.stored.requests)


def _cost(entry: Entry) -> float | None:
    return _per_episode(entry, entry.stored.cost)


def _seconds(entry: Entry) -> float | None:
    return _per_episode(entry, entry.stored.seconds)


def _latency_mean(entry: Entry) -> float | None:
    return None if entry.stored.latency is None else entry.stored.latency.mean


def _latency_p95(entry: Entry) -> float | None:
    return None if entry.stored.latency is None else entry.stored.latency.p95


_PLAYED = (
    _Figure("evaluation", "evaluation", "text", lambda entry: _text(entry.name)),
    _Figure("model", "model", "text", lambda entry: _text(entry.stored.model)),
    _Figure("agent", "agent", "text", lambda entry: _text(entry.stored.agent)),
    _Figure("success", "success", "rate", lambda entry: entry.panel.success),
)
_PLAYED_HOW = (
    _Figure("score", "score", "score", lambda entry: entry.panel.score),
    _Figure("episode_length", "steps per episode", "length", lambda entry: entry.panel.episode_length),
    _Figure("episodes", "episodes", "count", lambda entry: entry.stored.episodes_played),
    _Figure("failed", "failed", "count", lambda entry: entry.stored.failed),
)
_EFFORT = (
    _Figure("tokens_per_episode", "tokens per episode", "count", _tokens, "effort"),
    _Figure("requests_per_episode", "requests per episode", "length", _requests, "effort"),
    _Figure("cost_per_episode", "cost per episode", "amount", _cost, "effort"),
    _Figure("seconds_per_episode", "seconds per episode", "amount", _seconds, "effort"),
    _Figure("latency_mean", "mean request latency (s)", "amount", _latency_mean, "effort"),
    _Figure("latency_p95", "95 % quantile of request latency (s)", "amount", _latency_p95, "effort"),
)
