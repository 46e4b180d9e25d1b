"""Aggregates evaluations: for every environment and split a row per label, and differences to the reference.

One run in a row gives its success with the 95 % interval over tasks; n runs give the mean and the standard deviation
over their training seeds. Differences are paired: by training seed where both rows have the same two or more seeds,
else by task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from hgpo.config import setting_values
from hgpo.evaluation.result_files import Latency
from hgpo.evaluation.statistics import (
    Evaluation,
    Rate,
    detectable,
    gain,
    mean_interval,
    paired_bootstrap,
    rate,
    task_deviation,
    units_needed,
)
from hgpo.report.compare_entries import LONGEST_LABEL, Entry
from hgpo.utils.text import counted, visible

Kind = Literal["text", "rate", "share", "score", "length", "count", "amount", "whole"]
Block = Literal["main", "task type", "trial", "cost"]
LEAST_TASKS, LEAST_SHARE = 10, 0.5
"""Different task lists are compared if they share at least this many tasks and this share of the shorter list."""
TARGET = 0.05
"""The difference for which the needed number of tasks or seeds is given."""
_OF_ONE_RUN = {"run.seed", "run.name", "run.directory"}


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean over the runs of a row, and its standard deviation over their training seeds (ddof 1)."""

    mean: float
    deviation: float


Cell: TypeAlias = Mean | Rate | float | int | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of every row.

    Attributes:
        name: Name in CSV.
        heading: Heading in tables for people.
        kind: How the cells are formatted.
        block: The table it belongs to.
        of: The value of one entry, None where it is unknown.
    """

    name: str
    heading: str
    kind: Kind
    block: Block
    of: Callable[[Entry], Any]

    def cell(self, entries: Sequence[Entry]) -> Cell:
        """The value of a row: counts are summed, texts listed, other values averaged."""
        values = [value for entry in entries if (value := self.of(entry)) is not None]
        if self.kind == "text":
            return ", ".join(visible(value, 60) for value in dict.fromkeys(values)) or None
        if len(values) < 2:
            return next(iter(values), None)
        if self.kind == "count":
            return int(sum(values))
        numbers = [value.mean if isinstance(value, Rate) else value for value in values]
        return Mean(float(np.mean(numbers)), float(np.std(numbers, ddof=1)))


@dataclass(frozen=True, slots=True)
class Difference:
    """Success of a row minus success of the reference, as a fraction.

    Attributes:
        mean: None where no difference can be given.
        low, high: 95 % interval.
        over: What the interval is over, such as "256 tasks" or "3 training seeds".
        remark: Why there is no difference, or that it covers only the common tasks.
        detectable: Least true difference that as many tasks or seeds find in 80 of 100 cases.
        needed: Number of tasks or seeds that find a difference of `TARGET`; None if the differences do not vary.
        bootstrap: 95 % interval over training seeds and tasks, where `over` is training seeds.
    """

    mean: float | None
    low: float = 0.0
    high: float = 0.0
    over: str = ""
    remark: str = ""
    detectable: float = 0.0
    needed: int | None = None
    bootstrap: tuple[float, float] | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.mean is not None and not self.low <= 0.0 <= self.high


@dataclass(frozen=True, slots=True)
class Row:
    """One label in one section.

    Attributes:
        label: Name of the row.
        runs: How many evaluations it aggregates, n.
        cells: By name of the column, None where it is unknown.
        difference: None for the reference, and where the reference has no row.
        notes: How it differs from the reference (from the first row, where the reference has none), how its runs
            differ, and its failed episodes.
    """

    label: str
    runs: int
    cells: Mapping[str, Cell]
    difference: Difference | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """All rows of one environment and split.

    Attributes:
        environment: None where it is unknown.
        split: Name of the split.
        title: Environment, split, tasks, temperature and evaluation seeds of the reference, or of the first row.
        columns: The columns in which some row has a value.
        rows: In the order of the arguments.
    """

    environment: str | None
    split: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All sections, all labels, and the label of the reference row."""

    reference: str
    labels: tuple[str, ...]
    sections: tuple[Section, ...]


def compare(entries: Sequence[Entry], reference: str | None = None) -> Comparison:
    """Compare entries by environment and split.

    Args:
        entries: At least one; those with one label make one row.
        reference: Label of the row that the others are compared with; None: the first.

    Raises:
        ValueError: No entry has that label.
    """
    labels = tuple(dict.fromkeys(entry.label for entry in entries))
    written = labels[0] if reference is None else visible(reference, len(reference))
    chosen = next((label for label in labels if label in (written, visible(written, LONGEST_LABEL))), None)
    if chosen is None:
        raise ValueError(f"--reference {written}: no such row; choose one of: {', '.join(labels)}")
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
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.label, []).append(entry)
    base = groups.get(reference)
    first = (base or entries)[0]
    columns = _columns(entries)
    rows = tuple(
        Row(
            label,
            len(group),
            {column.name: column.cell(group) for column in columns},
            difference(base, group) if base and label != reference else None,
            tuple(_notes(group, first)),
        )
        for label, group in groups.items()
    )
    kept = tuple(column for column in columns if any(row.cells[column.name] is not None for row in rows))
    return Section(environment, split, _title(environment, first.evaluation), kept, rows)


def _title(environment: str | None, evaluation: Evaluation) -> str:
    seeds = ", ".join(map(str, evaluation.seeds))
    return (
        f"{visible(environment or 'unknown environment', 60)}, {visible(evaluation.split, 60)}: "
        f"{counted(evaluation.success.tasks, 'task')}, temperature {evaluation.temperature:g}, "
        f"evaluation seed{'s' if len(evaluation.seeds) > 1 else ''} {seeds}"
    )


def difference(reference: Sequence[Entry], others: Sequence[Entry]) -> Difference:
    """Success of `others` minus success of `reference`, paired, with its 95 % interval."""
    sizes = [max(len(entry.evaluation.tasks_won) for entry in group) for group in (reference, others)]
    shared = _common([*reference, *others])
    remark = ""
    if len(shared) < max(sizes):
        of = f"of {sizes[0]:,} of the reference and {sizes[1]:,} of this row"
        if len(shared) < max(LEAST_TASKS, LEAST_SHARE * min(sizes)):
            return Difference(None, remark=f"{counted(len(shared), 'task')} in common, {of}")
        remark = f"on the {len(shared)} tasks in common, {of}"
    ours, theirs = ({e.seed: e.evaluation.tasks_won for e in group} for group in (reference, others))
    if None not in ours and ours.keys() == theirs.keys() and 1 < len(ours) == len(reference) == len(others):
        difference_ST = np.array([[theirs[seed][task] - won[task] for task in shared] for seed, won in ours.items()])
        difference_S = difference_ST.mean(axis=1)
        if np.ptp(difference_S) > 1e-9:  # equal differences say nothing of the variation between seeds
            limits, over = mean_interval(difference_S.tolist()), f"{len(difference_S)} training seeds"
            power = _power(float(difference_S.std(ddof=1)), len(difference_S))
            return Difference(*limits, over, remark, *power, paired_bootstrap(difference_ST))
    found = gain(_on(shared, reference), _on(shared, others))
    power = _power(task_deviation(found), found.tasks)
    return Difference(found.mean, found.low, found.high, counted(found.tasks, "task"), remark, *power)


def _power(deviation: float, count: int) -> tuple[float, int | None]:
    """Least detectable difference, and how many units find `TARGET`."""
    if deviation == 0.0 or count < 2:
        return 0.0, None
    return min(1.0, detectable(deviation, count)), units_needed(deviation, TARGET)


def _common(group: Sequence[Entry]) -> list[str]:
    """Tasks that all entries of a row have."""
    return [task for task in group[0].evaluation.tasks_won if all(task in e.evaluation.tasks_won for e in group)]


def _on(tasks: Sequence[str], group: Sequence[Entry]) -> Evaluation:
    """The mean evaluation of a row on these tasks; only `tasks_won` and `success` are aggregated."""
    won = {task: float(np.mean([entry.evaluation.tasks_won[task] for entry in group])) for task in tasks}
    draws = sum(len(entry.evaluation.seeds) for entry in group)
    return replace(group[0].evaluation, tasks_won=won, success=rate(list(won.values()), draws))


def _notes(group: Sequence[Entry], first: Entry) -> list[str]:
    """How a row differs from `first`, how its runs differ, and its failed episodes."""
    found = []
    for name, of in _CONDITIONS.items():
        values = dict.fromkeys(value for entry in group if (value := of(entry)) is not None)
        if (ours := of(first)) is not None and any(value != ours for value in values):
            listed = ", ".join(visible(value, 60) for value in values)
            found.append(f"{name} {listed} ({first.label}: {visible(ours, 60)})")
    options = [entry.config.environment.options for entry in (first, *group) if entry.config]
    if first.config and any(one != options[0] for one in options):
        found.append(f"other environment.options than {first.label}")
    seeds = [entry.seed for entry in group]
    if len(group) > 1 and len(set(seeds) - {None}) < len(group):
        listed = ", ".join("unknown" if seed is None else str(seed) for seed in seeds)
        found.append(f"n counts evaluations, of training seeds {listed}")
    settings = [setting_values(entry.config) for entry in group if entry.config]
    unlike = [name for name in (settings or [{}])[0] if len({one.get(name) for one in settings}) > 1]
    if unlike := [name for name in unlike if name not in _OF_ONE_RUN]:
        found.append(f"its runs also differ in {', '.join(unlike[:5])}{', …' if len(unlike) > 5 else ''}")
    if differing := {task for entry in group for task in entry.stored.manifest_differs}:
        found.append(f"tasks that differ from the manifest: {len(differing):,}")
    if failed := sum(entry.stored.failed or 0 for entry in group):
        total = failed + sum(entry.stored.episodes_played for entry in group)
        found.append(f"{failed:,} of {total:,} episodes failed and are not counted in success")
    return found


_CONDITIONS: dict[str, Callable[[Entry], str | None]] = {
    "temperature": lambda entry: f"{entry.evaluation.temperature:g}",
    "evaluation seeds": lambda entry: ", ".join(map(str, entry.evaluation.seeds)),
    "manifest": lambda entry: entry.stored.manifest,
    "step limit": lambda entry: str(entry.config.environment.max_steps) if entry.config else None,
}


def _columns(entries: Sequence[Entry]) -> list[Column]:
    """All columns; there is one for each task type and trial that any entry has."""
    kinds = dict.fromkeys(kind for entry in entries for kind in entry.evaluation.by_task_type)
    trials = max(len(entry.stored.success_by_trial or ()) for entry in entries)
    return [*_MAIN, *map(_on_type, kinds), *map(_after_trial, range(1, trials + 1)), *_COST]


def _on_type(kind: str) -> Column:
    name, heading = f"success/{visible(kind)}", visible(kind, 60)
    return Column(name, heading, "rate", "task type", lambda e: e.evaluation.by_task_type.get(kind))


def _after_trial(trial: int) -> Column:
    name = f"success after trial {trial}"
    return Column(
        name.replace(" ", "_"),
        name,
        "share",
        "trial",
        lambda e: dict(enumerate(e.stored.success_by_trial or (), 1)).get(trial),
    )


def _per_episode(name: str, kind: Kind, of: Callable[[Entry], float | None]) -> Column:
    """A total, which includes failed episodes, divided by the number of episodes played to the end."""

    def value(entry: Entry) -> float | None:
        total, episodes = of(entry), entry.stored.episodes_played
        return total / episodes if total is not None and episodes else None

    return Column(f"{name}_per_episode", f"{name} per episode", kind, "cost", value)


def _latency(name: str, heading: str, of: Callable[[Latency], float]) -> Column:
    return Column(name, heading, "amount", "cost", lambda e: e.stored.latency and of(e.stored.latency))


_MAIN = (
    Column("evaluation", "evaluation", "text", "main", lambda e: e.name),
    Column("model", "model", "text", "main", lambda e: e.stored.model),
    Column("agent", "agent", "text", "main", lambda e: e.stored.agent),
    Column("success", "success, %", "rate", "main", lambda e: e.evaluation.success),
    Column("score", "score", "score", "main", lambda e: e.evaluation.score),
    Column("episode_length", "steps per episode", "length", "main", lambda e: e.evaluation.episode_length),
    Column("episodes", "episodes", "count", "main", lambda e: e.stored.episodes_played),
    Column("failed", "failed", "count", "main", lambda e: e.stored.failed),
)
_COST = (
    _per_episode("tokens", "whole", lambda e: e.stored.tokens.total if e.stored.tokens else None),
    _per_episode("requests", "length", lambda e: e.stored.requests),
    _per_episode("cost", "amount", lambda e: e.stored.cost),
    _per_episode("seconds", "amount", lambda e: e.stored.seconds),
    _latency("latency_mean", "mean request latency (s)", lambda latency: latency.mean),
    _latency("latency_p95", "95 % quantile of request latency (s)", lambda latency: latency.p95),
)
