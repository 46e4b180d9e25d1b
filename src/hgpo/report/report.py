"""A report: the figures of every update and the steps that are shown, gathered file by file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hgpo.report.analysis import UpdateFigures, analyse
from hgpo.report.comparison import ShownEstimator, level_estimator, shown_estimators
from hgpo.report.loading import Training, UpdateSteps, chosen_updates, list_updates, read_update
from hgpo.report.reading import Notice
from hgpo.report.sampling import TaskSampler
from hgpo.report.shown import ShownSteps, shown_steps
from hgpo.report.verl_dumps import DumpReader

MAX_STEPS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything a page, a figure or the terminal shows.

    Attributes:
        source: what was inspected, as the user named it. training: how it was trained on, None where nobody knows.
        gamma: discount of the returns. estimators: those set side by side. followed: whose levels the overview shows.
        figures: one per update that could be read, over all its steps. shown: the steps that can be looked at.
        notices: what was left out and why. steps, tasks: read, in all updates.

    Example: `build_report(Path("runs/quickstart"), training).figures[0].success`.
    """

    source: str
    training: Training | None
    gamma: float
    estimators: tuple[ShownEstimator, ...]
    followed: ShownEstimator
    figures: tuple[UpdateFigures, ...]
    shown: tuple[ShownSteps, ...]
    notices: tuple[Notice, ...]
    steps: int
    tasks: int

    @property
    def shown_count(self) -> int:
        """Number of steps that can be looked at."""
        return sum(map(len, self.shown))

    @property
    def shown_tasks(self) -> int:
        """Number of tasks that can be looked at."""
        return sum(len(shown.task_ids) for shown in self.shown)

    def thinned(self, share: float) -> Report:
        """The same with about `share` (above 0, below 1) of the shown tasks, spread evenly, at least one."""
        share = max(share, 1.0 / self.shown_tasks)
        sampler = TaskSampler(share, np.random.default_rng(0))
        thinner = [(shown, sampler.take(shown.task_S)) for shown in self.shown]
        kept = tuple(shown.with_tasks(tasks) for shown, tasks in thinner if tasks)
        return replace(self, shown=kept)


def build_report(
    path: Path,
    training: Training | None = None,
    *,
    max_steps: int = MAX_STEPS,
    updates: Sequence[int] | None = None,
    notices: Sequence[Notice] = (),
    read_dump: DumpReader | None = None,
    on_file: Callable[[int, int], None] | None = None,
) -> Report:
    """Read and analyse what `path` stands for.

    Args:
        path: a run directory, a file or a folder of files. training: how it was trained on, if that is known.
        max_steps: show at most so many steps, as whole tasks (but at least one task); the figures
            count all.
        updates: only these, None for all. notices: what the caller had to leave out already.
        read_dump: for verl's dumps, see `read_update`. on_file: called with (files read, files) after each.

    Raises:
        ValueError: an update of `updates` is not there, or there is nothing that can be read; the message says which
            updates there are, or what is wrong with each file.
    """
    files = list_updates(path)
    known = training is not None and bool(training.metrics)
    if not files and (updates is not None or not known):
        raise ValueError(f"{path} holds no rollouts (*.parquet, *.jsonl); a run stores some after its first update")
    if updates is not None:
        files = chosen_updates(path, files, updates)
    estimators = shown_estimators(training)
    gamma = training.gamma if training else 0.95
    total = sum(file.rows for file in files)
    share = min(1.0, max_steps / max(total, 1))
    sampler = TaskSampler(share, np.random.default_rng(0), due=1.0 if share < 1.0 else 0.0)
    figures: list[UpdateFigures] = []
    shown: list[ShownSteps] = []
    found = list(notices)
    if not files:
        found.append(Notice(f"{path} holds no rollouts, so there are figures of its updates and no steps"))
    for number, file in enumerate(files, start=1):
        figured = _add(read_update(file, read_dump), file.path.name, estimators, gamma, sampler, shown, found)
        figures += figured
        if on_file is not None:
            on_file(number, len(files))
    if not figures and not known:
        reasons = "\n".join(f"  {notice}" for notice in found) or "  every file is empty (no row 0)"
        raise ValueError(f"{path}: nothing can be shown\n{reasons}")
    report = Report(
        source=str(path),
        training=training,
        gamma=gamma,
        estimators=estimators,
        followed=level_estimator(estimators),
        figures=tuple(figures),
        shown=tuple(shown),
        notices=tuple(found),
        steps=sum(update.summary.steps for update in figures),
        tasks=sum(update.summary.tasks for update in figures),
    )
    while report.shown_count > max_steps and report.shown_tasks > 1:  # the drawn tasks were longer than most
        report = report.thinned(min(max_steps / report.shown_count, 1.0 - 1.0 / report.shown_tasks))
    return report


def _add(
    steps: UpdateSteps,
    name: str,
    estimators: Sequence[ShownEstimator],
    gamma: float,
    sampler: TaskSampler,
    shown: list[ShownSteps],
    notices: list[Notice],
) -> list[UpdateFigures]:
    """Analyse one file; its shown steps and notices go into the lists."""
    notices.extend(steps.notices)
    if steps.batch is None:
        if not steps.notices:
            notices.append(Notice("is empty (no row 0)", name))
        return []
    analysed = analyse(steps, estimators, gamma)
    tasks = sampler.take(steps.batch.group)
    if tasks:
        shown.append(shown_steps(analysed, tasks))
    return [analysed.figures]
