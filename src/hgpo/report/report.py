"""Builds a report file by file: the statistics of every update, and a sample of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np

from hgpo.estimators.diagnostics import starts_note
from hgpo.report.analysis import BY_REWARDS, UNKNOWN, UpdateMetrics, analyse
from hgpo.report.estimator_comparison import NO_TRAINING, ReportEstimator, Training, report_estimators
from hgpo.report.sampled import SampledTask, sample_tasks
from hgpo.rollout.keyed_steps import KeyMatches, describe_matches, keyed_steps
from hgpo.storage.discover import NoRolloutsError, StepFile, find_step_files
from hgpo.storage.reading import count_rows, read_intact
from hgpo.storage.schema import Notice

MAX_STEPS = 20_000
_ROUNDING = 1e-9
"""Added before rounding down, so that ten times 0.1 counts as 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """The data of the report page, its charts and the terminal summary.

    Attributes:
        source: what was inspected, as the user named it.
        training: the explained estimator, and what is known of the training.
        estimators: the compared estimators.
        updates: the metrics of every update that could be read, over all its steps.
        samples: the sampled tasks of the task and step views.
        notices: what was left out and why.
        steps, tasks: numbers of read steps and tasks over all updates.
        unit: what the numbers of the updates count, see `hgpo.storage.discover.StepFile`.
        matching: what the state key matched, if one was applied (`hgpo.rollout.keyed_steps.describe_matches`), and
            a note if trajectories of a task start in different states.
    """

    source: str
    training: Training
    estimators: tuple[ReportEstimator, ...]
    updates: tuple[UpdateMetrics, ...]
    samples: tuple[SampledTask, ...]
    notices: tuple[Notice, ...]
    steps: int
    tasks: int
    unit: str = "update"
    matching: tuple[str, ...] = ()

    @property
    def won_rule(self) -> str:
        """How it is known which trajectories won; "" if all files have a column for it."""
        ways = {update.won_by for update in self.updates}
        if UNKNOWN in ways:
            return (
                "No column success: which trajectories won is unknown where their rewards sum to other values than 0, "
                "1 and -1, and sums of rewards are shown instead; --column success=KEY names a column"
            )
        if BY_REWARDS in ways:
            return "No column success: a trajectory counts as won if its rewards sum to 1 (all sums are 0, 1 or -1)"
        return ""

    @property
    def sampled_steps(self) -> int:
        """Number of sampled steps."""
        return sum(map(len, self.samples))

    def thinned(self, share: float) -> Report:
        """The report with about `share` (above 0, below 1) of the sampled tasks, spread evenly, at least one."""
        sampler = TaskSampler(max(share, 1.0 / len(self.samples)))
        kept: list[SampledTask] = []
        for _, group in groupby(self.samples, attrgetter("update")):
            tasks = list(group)
            kept += [tasks[number] for number in sampler.take(len(tasks))]
        return replace(self, samples=tuple(kept))


def build_report(
    path: Path,
    training: Training = NO_TRAINING,
    *,
    max_steps: int = MAX_STEPS,
    updates: Sequence[int] | None = None,
    notices: Sequence[Notice] = (),
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    state: str | None = None,
) -> Report:
    """Read and analyse the steps at `path`.

    Args:
        path: a run directory, a file or a folder of files.
        training: the estimator to explain, and what is known of the training.
        max_steps: most sampled steps, as whole tasks (at least one task); statistics use all steps.
        updates: the updates to read, None for all.
        notices: omissions found by the caller.
        format, columns: see `hgpo.storage.discover.find_step_files` and `hgpo.storage.reading.read_batch`.
        state: the key to compare states by, see `hgpo.rollout.keyed_steps.keyed_steps`; None: stored observations.

    Raises:
        ValueError: an update of `updates` is missing, or no file is readable; the message lists the existing updates,
            or the problem of each file.
    """
    files, without_steps = _step_files(path, format, updates, columns or (), training)
    found = [*notices, *without_steps]
    estimators = report_estimators(training)
    total = sum(count_rows(file.path) for file in files)
    share = min(1.0, max_steps / max(total, 1))
    sampler = TaskSampler(share, due=1.0 if share < 1.0 else 0.0)
    metrics: list[UpdateMetrics] = []
    samples: list[SampledTask] = []
    matches: list[KeyMatches] = []
    for file in files:
        steps, file_notices = read_intact(file, columns)
        found += file_notices
        if steps is None:
            continue
        if state is not None:
            batch, matched = keyed_steps(steps.batch, state)
            steps = replace(steps, batch=batch, observed=steps.batch)
            matches.append(matched)
        analysed = analyse(steps, estimators, training.gamma)
        metrics.append(analysed.metrics)
        if taken := sampler.take(analysed.metrics.summary.tasks):
            samples += sample_tasks(analysed, taken)
    if not metrics and not training.metrics:
        reasons = "\n".join(f"  {notice}" for notice in found)
        raise ValueError(f"{path}: nothing can be reported\n{reasons}")
    tasks = sum(update.summary.tasks for update in metrics)
    unequal = sum(update.summary.unequal_starts for update in metrics)
    report = Report(
        source=str(path),
        training=training,
        estimators=estimators,
        updates=tuple(metrics),
        samples=tuple(samples),
        notices=tuple(found),
        steps=sum(update.summary.steps for update in metrics),
        tasks=tasks,
        unit=files[0].unit if files else "update",
        matching=tuple(filter(None, [*describe_matches(matches), starts_note(unequal / max(tasks, 1))])),
    )
    while report.sampled_steps > max_steps and len(report.samples) > 1:  # if the sampled tasks are long
        report = report.thinned(min(max_steps / report.sampled_steps, 1.0 - 1.0 / len(report.samples)))
    return report


def _step_files(
    path: Path, format: str, updates: Sequence[int] | None, columns: Collection[str], training: Training
) -> tuple[list[StepFile], list[Notice]]:
    """The files of steps; if there are none and metrics suffice for a report, a notice that says so."""
    try:
        return find_step_files(path, format, updates, columns), []
    except NoRolloutsError as error:
        if updates is not None or not training.metrics:
            raise
        return [], [Notice(f"{error}. The report has the metrics of its updates and no steps")]


class TaskSampler:
    """Takes `share` of the tasks of each update, drawn at random, and carries the remaining fraction over to the next.

    Every task is equally likely. Filling up a number of steps with tasks that still fit would prefer short tasks, most
    of which were won.

    Example: with share 0.4, updates of four tasks each give 1, 2, 1, 2, 2 tasks.
    """

    def __init__(self, share: float, due: float = 0.0) -> None:
        """Take `share` (0 to 1) of the tasks, and `due` more (1: surely one of the first update)."""
        self._share = share
        self._rng = np.random.default_rng(0)
        self._due = due

    def take(self, tasks: int) -> list[int]:
        """The tasks of one update to show, ascending numbers below `tasks`."""
        self._due += self._share * tasks
        count = int(self._due + _ROUNDING)
        self._due -= count
        return [int(task) for task in np.sort(self._rng.permutation(tasks)[:count])]
