"""What a run changed, as a file for programs and as a table for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hgpo.evaluation.eval_history import gain_on_one_set, training_evaluations
from hgpo.evaluation.result_files import percent, stored_evaluation
from hgpo.evaluation.statistics import Evaluation, Rate, detectable_by
from hgpo.runs.folder import (
    RunDirectory,
    RunDirectoryError,
    check_schema,
    read_json,
    read_metrics,
    resume_command,
    write_json,
)
from hgpo.utils.progress import Reporter
from hgpo.utils.text import counted, visible


@dataclass(frozen=True, slots=True)
class _Summary:
    """The keys of `summary.json` that are read."""

    estimator: str
    updates: int
    seconds: float
    success_before: float | None
    success_after: float
    gain: float | None
    gain_interval: tuple[float, float] | None
    tasks_evaluated: int
    split: str


def write_summary(
    run: RunDirectory, facts: Mapping[str, Any], before: Evaluation | None, after: Evaluation, *, seconds: float
) -> None:
    """Write `summary.json`; the file exists only if the run is complete.

    Args:
        run: the run.
        facts: name, estimator, estimator_options, environment, seed, updates.
        before: evaluation of the start policy; None: it was not evaluated. There is no gain then, or if an edited
            `config.toml` changed the evaluation.
        after: evaluation of the trained policy.
        seconds: duration of the whole run.
    """
    change = None if before is None else gain_on_one_set(before, after)
    write_json(
        run.summary,
        {
            **facts,
            "seconds": round(seconds, 1),
            "success_before": before and before.success.mean,
            "success_after": after.success.mean,
            "gain": change and change.mean,
            "gain_interval": change and [change.low, change.high],
            "score_before": before and before.score,
            "score_after": after.score,
            "tasks_evaluated": after.success.tasks,
            "split": after.split,
            "temperature": after.temperature,
            "evaluation_seeds": list(after.seeds),
            "evaluations": training_evaluations(run),
        },
    )


def read_summary(run: RunDirectory) -> dict[str, Any]:
    """The summary of a complete run.

    Raises:
        RunDirectoryError: The run is not complete, or `summary.json` is damaged.
    """
    if not run.complete:
        raise RunDirectoryError(f"{run.path} is not complete; continue it with {resume_command(run.path)}")
    try:
        summary = read_json(run.summary)
        check_schema(run.summary, summary, _Summary)
    except ValueError as error:
        raise RunDirectoryError(f"{error}; delete it and {resume_command(run.path)} writes it again") from error
    return summary


def show_summary(run: RunDirectory, reporter: Reporter) -> None:
    """Print the change of success and the paths of the results."""
    summary = read_summary(run)
    before, after = stored_evaluation(run, "before"), stored_evaluation(run, "after")
    if after is not None:
        print_evaluation(reporter.console, after, before)
    reporter.say(
        f"\n{summary['estimator']}: success on {summary['tasks_evaluated']} held-out tasks of {summary['split']}: "
        f"{_change(summary)}, {counted(summary['updates'], 'update')}, {summary['seconds']:.0f} s."
    )
    reporter.say("")
    for path, what in (
        (run.metrics, f"every update's figures ({counted(len(read_metrics(run)), 'row')})"),
        (run.rollouts, "every step with its prompt, response and advantage"),
        (run.checkpoints, "the trained policy, in Hugging Face format"),
        (run.summary, "the figures above"),
    ):
        if path.exists():
            reporter.say(f"  {str(path) + ('/' if path.is_dir() else ''):<{len(str(run.path)) + 19}} {what}")
    quoted = shlex.quote(str(run.path))
    report = f"hgpo inspect {quoted}    " if run.rollouts.exists() else ""  # it needs stored steps
    start = "" if run.checkpoints.exists() else " --checkpoint start"  # there was no update
    reporter.say(f"Next: {report}hgpo eval {quoted}{start} --seeds 1 2 3")


def _change(summary: Mapping[str, Any]) -> str:
    after = percent(summary["success_after"])
    if summary["gain"] is None:
        return after
    low, high = summary["gain_interval"]
    change = Rate(summary["gain"], low, high, summary["tasks_evaluated"])
    points = f"{100 * change.mean:+z.1f} points, 95 % CI {100 * low:+z.1f} to {100 * high:+z.1f}"
    detects = f"{counted(change.tasks, 'task')} detect ≥ {100 * detectable_by(change):.1f}"
    return f"{percent(summary['success_before'])} → {after} ({points}; {detects})"


def print_evaluation(console: Console, evaluation: Evaluation, before: Evaluation | None = None) -> None:
    """Print success per task type with 95 % intervals; `before`, if given, adds a column with its success.

    The names of task types come from the environment. They are escaped, so that rich does not parse them as markup.
    """
    title = f"Success on {visible(evaluation.split)} (temperature {evaluation.temperature:g})"
    table = Table("task type", title=Text(title, style="table.title"))
    figures = ("before", "after", "95 % CI of after") if before else ("success", "95 % CI")
    for column in ("tasks", *figures):
        table.add_column(column, justify="right")
    types = before.by_task_type if before else {}
    rows = [(kind, rate, types.get(kind)) for kind, rate in evaluation.by_task_type.items()]
    for kind, rate, earlier in [*rows, ("all", evaluation.success, before and before.success)]:
        start = [percent(earlier.mean) if earlier else ""] if before else []
        interval = f"{percent(rate.low)} – {percent(rate.high)}"
        table.add_row(Text(visible(kind)), str(rate.tasks), *start, percent(rate.mean), interval)
    console.print(table)
