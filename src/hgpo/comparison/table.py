"""Aggregates evaluations: for every environment and split a row per label, and differences to the reference.

One run in a row gives its success with the 95 % interval over tasks; n runs give the mean and the standard deviation
over their training seeds. Differences are paired: by training seed where both rows have the same two or more seeds,
else by task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from hgpo.comparison.entries import Entry
from hgpo.config import setting_values
from hgpo.evaluation import Evaluation, Rate, gain, mean_interval, rate
from hgpo.visible import visible

Kind = Literal["text", "rate", "share", "score", "length", "count", "amount"]
Block = Literal["main", "task type", "trial", "cost"]
LEAST_TASKS, LEAST_SHARE = 10, 0.5
"""Different task lists are compared on their common tasks if these are so many, and this share of the shorter list."""
_OF_ONE_RUN = {"run.seed", "run.name", "run.directory"}


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean over the runs of a row, and its standard deviation over their training seeds (ddof 1)."""

    mean: float
    deviation: float


Cell: TypeAlias = Mean | Rate | float | int | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of every row.

    Attributes:
        name: For programs.
        heading: For people.
        kind: How the cells are formatted.
        block: The table it belongs to.
        cells: One per row, None where it is unknown.
    """

    name: str
    heading: str
    kind: Kind
    block: Block
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Success of a row less that of the reference, as a fraction.

    Attributes:
        mean: None where no difference can be given.
        low, high: 95 % interval.
        over: What the interval is over, such as "256 tasks" or "3 training seeds".
        remark: Why there is none, or that it is on the common tasks alone.
    """

    mean: float | None
    low: float = 0.0
    high: float = 0.0
    over: str = ""
    remark: str = ""

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.mean is not None and not self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True)
class Row:
    """One label in one section. `difference` is None for the reference, and where the reference has no row."""

    label: str
    runs: int
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Section:
    """All rows of one environment and split.

    Attributes:
        environment: None where it is unknown.
        split: Name of the split.
        title: Environment, split, tasks, temperature and evaluation seeds of the first row.
        rows: In the order of the arguments.
        columns: Those in which a row has a value.
        notes: What the rows do not have in common, and failed episodes.
    """

    environment: str | None
    split: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    def cell(self, label: str, column: str) -> Cell:
        """One cell; None where there is no such row or column."""
        place = next((place for place, row in enumerate(self.rows) if row.label == label), None)
        found = next((one for one in self.columns if one.name == column), None)
        return None if place is None or found is None else found.cells[place]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All sections, and the label that differences are to."""

    reference: str
    labels: tuple[str, ...]
    sections: tuple[Section, ...]


def compare(entries: Sequence[Entry], reference: str | None = None) -> Comparison:
    """Compare entries by environment and split.

    Args:
        entries: At least one; those with one label make one row.
        reference: Label of the row that differences are to; None: the first.

    Raises:
        ValueError: No entry has that label.
    """
    labels = tuple(dict.fromkeys(entry.label for entry in entries))
    chosen = labels[0] if reference is None else visible(reference)
    if chosen not in labels:
        raise ValueError(f"--reference {chosen}: no such row; choose one of: {', '.join(labels)}")
    keys = list(dict.fromkeys(_section_of(entry, entries) for entry in entries))
    sections = tuple(
        _section(*key, [entry for entry in entries if _section_of(entry, entries) == key], chosen) for key in keys
    )
    return Comparison(chosen, labels, sections)


def _section_of(entry: Entry, entries: Sequence[Entry]) -> tuple[str | None, str]:
    """Environment and split; a file without an environment joins the only environment that has its split."""
    split = entry.evaluation.split
    known = {other.environment for other in entries if other.environment and other.evaluation.split == split}
    return (entry.environment or (known.pop() if len(known) == 1 else None)), split


def _section(environment: str | None, split: str, entries: Sequence[Entry], reference: str) -> Section:
    by_label: dict[str, list[Entry]] = {}
    for entry in entries:
        by_label.setdefault(entry.label, []).append(entry)
    base = by_label.get(reference)
    rows = tuple(
        Row(label, len(group), difference(base, group) if base and label != reference else None)
        for label, group in by_label.items()
    )
    first = base or next(iter(by_label.values()))
    notes = [note for label, group in by_label.items() for note in _notes(label, group, first[0])]
    columns = (_column(*figure, list(by_label.values())) for figure in _figures(entries))
    kept = tuple(column for column in columns if any(cell is not None for cell in column.cells))
    return Section(environment, split, _title(environment, first[0].evaluation), rows, kept, tuple(notes))


def _title(environment: str | None, evaluation: Evaluation) -> str:
    seeds = ", ".join(map(str, evaluation.seeds))
    return (
        f"{visible(environment or 'unknown environment', 60)}, {visible(evaluation.split, 60)}: "
        f"{evaluation.success.tasks:,} tasks, temperature {evaluation.temperature:g}, "
        f"evaluation seed{'s' if len(evaluation.seeds) > 1 else ''} {seeds}"
    )


def difference(reference: Sequence[Entry], others: Sequence[Entry]) -> Difference:
    """Success of `others` less that of `reference`, paired, with its 95 % interval."""
    lists = [_common(group) for group in (reference, others)]
    shared = [task for task in lists[0] if task in set(lists[1])]
    smaller = min(map(len, lists))
    remark = ""
    if len(shared) < max(map(len, lists)):
        sizes = f"of {len(lists[0])} tasks of the reference and {len(lists[1])} of this row"
        if len(shared) < max(LEAST_TASKS, LEAST_SHARE * smaller):
            return Difference(None, remark=f"{len(shared)} tasks in common, {sizes}")
        remark = f"on the {len(shared)} tasks in common, {sizes}"
    by_seed = [{entry.seed: _on(shared, [entry]).success.mean for entry in group} for group in (reference, others)]
    if by_seed[0].keys() == by_seed[1].keys() and 1 < len(by_seed[0]) == len(reference) == len(others):
        mean, low, high = mean_interval([by_seed[1][seed] - success for seed, success in by_seed[0].items()])
        return Difference(mean, low, high, f"{len(by_seed[0])} training seeds", remark)
    found = gain(_on(shared, reference), _on(shared, others))
    return Difference(found.mean, found.low, found.high, f"{found.tasks:,} tasks", remark)


def _common(group: Sequence[Entry]) -> list[str]:
    """Tasks that all entries of a row have."""
    return [task for task in group[0].evaluation.tasks_won if all(task in e.evaluation.tasks_won for e in group)]


def _on(tasks: Sequence[str], group: Sequence[Entry]) -> Evaluation:
    """The mean evaluation of a row on these tasks; only `tasks_won` and `success` are aggregated."""
    won = {task: float(np.mean([entry.evaluation.tasks_won[task] for entry in group])) for task in tasks}
    draws = sum(len(entry.evaluation.seeds) for entry in group)
    return replace(group[0].evaluation, tasks_won=won, success=rate(list(won.values()), draws))


def _notes(label: str, group: Sequence[Entry], first: Entry) -> list[str]:
    """What a row has unlike the first entry of the section, how its runs differ, and its failed episodes."""
    found = []
    for name, of in _CONDITIONS.items():
        values = dict.fromkeys(value for entry in group if (value := of(entry)) is not None)
        if (ours := of(first)) is not None and any(value != ours for value in values):
            found.append(f"{name} {', '.join(visible(value, 60) for value in values)} (reference: {visible(ours, 60)})")
    seeds = [entry.seed for entry in group]
    if len(group) > 1 and len(set(seeds) - {None}) < len(group):
        found.append(f"{len(group)} evaluations, {len(set(seeds) - {None})} different training seeds")
    settings = [setting_values(entry.config) for entry in group if entry.config]
    unlike = [name for name in (settings or [{}])[0] if len({one.get(name) for one in settings}) > 1]
    if unlike := [name for name in unlike if name not in _OF_ONE_RUN]:
        found.append(f"its runs also differ in {', '.join(unlike[:5])}{', …' if len(unlike) > 5 else ''}")
    if failed := sum(entry.stored.failed or 0 for entry in group):
        total = failed + sum(entry.stored.episodes_played for entry in group)
        found.append(f"{failed:,} of {total:,} episodes failed and are not counted in success")
    return [f"{label}: {text}" for text in found]


_CONDITIONS: dict[str, Callable[[Entry], str | None]] = {
    "temperature": lambda entry: f"{entry.evaluation.temperature:g}",
    "step limit": lambda entry: str(entry.config.environment.max_steps) if entry.config else None,
    "environment.options": lambda entry: str(entry.config.environment.options) if entry.config else None,
}
_Figure: TypeAlias = tuple[str, str, Kind, Block, Callable[[Entry], Any]]


def _column(
    name: str, heading: str, kind: Kind, block: Block, of: Callable[[Entry], Any], rows: Sequence[Sequence[Entry]]
) -> Column:
    cells = (_cell(kind, [value for entry in row if (value := of(entry)) is not None]) for row in rows)
    return Column(name, heading, kind, block, tuple(cells))


def _cell(kind: Kind, values: Sequence[Any]) -> Cell:
    if kind == "text":
        return ", ".join(visible(value, 60) for value in dict.fromkeys(values)) or None
    if not values:
        return None
    if kind == "count" and all(isinstance(value, int) for value in values):
        return sum(values)
    if len(values) == 1:
        return values[0]
    numbers = [value.mean if isinstance(value, Rate) else value for value in values]
    return Mean(float(np.mean(numbers)), float(np.std(numbers, ddof=1)))


def _figures(entries: Sequence[Entry]) -> list[_Figure]:
    """All columns; types of task and trials are those that any entry has."""

    def on_type(kind: str) -> _Figure:
        return f"success/{visible(kind)}", visible(kind, 60), "rate", "task type", lambda e: _type(e, kind)

    def after_trial(trial: int) -> _Figure:
        name, heading = f"success_after_trial_{trial}", f"success after trial {trial}"
        return name, heading, "share", "trial", lambda e: _trial(e, trial)

    kinds = dict.fromkeys(kind for entry in entries for kind in entry.evaluation.by_task_type)
    trials = max(len(entry.stored.success_by_trial or ()) for entry in entries)
    return [*_MAIN, *map(on_type, kinds), *map(after_trial, range(1, trials + 1)), *_COST]


def _type(entry: Entry, kind: str) -> Rate | None:
    return entry.evaluation.by_task_type.get(kind)


def _trial(entry: Entry, trial: int) -> float | None:
    by_trial = entry.stored.success_by_trial or ()
    return by_trial[trial - 1] if trial <= len(by_trial) else None


def _per_episode(of: Callable[[Entry], float | None]) -> Callable[[Entry], float | None]:
    """A total, failed episodes included, over the episodes that ended."""

    def value(entry: Entry) -> float | None:
        total, episodes = of(entry), entry.stored.episodes_played
        return total / episodes if total is not None and episodes else None

    return value


_MAIN: tuple[_Figure, ...] = (
    ("evaluation", "evaluation", "text", "main", lambda e: e.name),
    ("model", "model", "text", "main", lambda e: e.stored.model),
    ("agent", "agent", "text", "main", lambda e: e.stored.agent),
    ("success", "success, %", "rate", "main", lambda e: e.evaluation.success),
    ("score", "score", "score", "main", lambda e: e.evaluation.score),
    ("episode_length", "steps per episode", "length", "main", lambda e: e.evaluation.episode_length),
    ("episodes", "episodes", "count", "main", lambda e: e.stored.episodes_played),
    ("failed", "failed", "count", "main", lambda e: e.stored.failed),
)
_COST: tuple[_Figure, ...] = (
    *(
        (f"{name}_per_episode", f"{name} per episode", kind, "cost", _per_episode(of))
        for name, kind, of in (
            ("tokens", "count", lambda e: e.stored.tokens and e.stored.tokens.total),
            ("requests", "length", lambda e: e.stored.requests),
            ("cost", "amount", lambda e: e.stored.cost),
            ("seconds", "amount", lambda e: e.stored.seconds),
        )
    ),
    (
        "latency_mean",
        "mean request latency (s)",
        "amount",
        "cost",
        lambda e: e.stored.latency and e.stored.latency.mean,
    ),
    (
        "latency_p95",
        "95 % quantile of request latency (s)",
        "amount",
        "cost",
        lambda e: e.stored.latency and e.stored.latency.p95,
    ),
)
