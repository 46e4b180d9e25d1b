"""`hgpo audit`: what a result or log of any trainer really evaluated."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hgpo.cli import amount
from hgpo.utils.text import counted, visible

if TYPE_CHECKING:
    from rich.console import Console

    from hgpo.evaluation.audit import Audit

KINDS = {
    "missing": "not played",
    "mixed": "with different game files or catalogues under one id",
    "other split": "of another split",
    "repeated": "played more often than others, or twice with one seed, in one pass",
    "seeds": "played with other seeds than the others",
    "training": "of a training split, or in the run's own rollouts",
    "unequal": "played less often than others in one pass",
    "unknown": "not in the evaluation set (not checked if the set itself is unknown)",
}
"""The violations, and what their tasks are."""
DESCRIPTION = """\
Check what results or logs really evaluated. PATH is the JSON file of an evaluation, a run directory, validation dumps
of verl or verl-agent (a folder of JSONL files named by step), or a table of any trainer: JSONL, parquet or a JSON array
with a row per episode or per step. Each PATH is checked by itself. Nothing that a file names is imported or played.

Prints the number of different tasks and their splits, the seeds, and success of every checkpoint with a 95 % CI over
tasks; of several checkpoints the peak, the last and the mean; and how many more plays are needed until all tasks have
been played equally often.
Violations are named with their tasks:

{kinds}

The evaluation set is the manifest of the package that fits best, unless --tasks names another one. Columns are found by
their usual names; --column names another key for task, goal_index, success, score, seed, trial, split, checkpoint,
trajectory, step, observation, goal, game or catalogue. docs/reporting.md explains the rules.

Exit status: 0 without a violation, 1 with one, 2 if something cannot be read.

examples:
  hgpo audit result.json
  hgpo audit runs/quickstart --json
  hgpo audit verl_validation/ --tasks alfworld-valid_seen-1 --reported 95.4
  hgpo audit trajectories.jsonl --tasks valid_unseen.json --column task=gamefile
"""
DESCRIPTION = DESCRIPTION.format(kinds="\n".join(f"  {kind:<12} {tasks}" for kind, tasks in KINDS.items()))
MOST_NAMED = 8
"""Tasks that the text names of each violation; --json has all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="result, run directory, log or folder")
    parser.add_argument(
        "--tasks", type=Path, metavar="FILE", help="the evaluation set: a JSON list of task ids, a manifest, or its id"
    )
    parser.add_argument(
        "--column", action="append", default=[], metavar="NAME=KEY", help="read a column from another key; repeatable"
    )
    parser.add_argument(
        "--reported",
        type=amount,
        metavar="PERCENT",
        help="published success in %%; says whether the log has it, and which checkpoint: peak, last or mean",
    )
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from rich.console import Console

    from hgpo.evaluation.audit import audit, read_tasks
    from hgpo.evaluation.episode_logs import read_logs
    from hgpo.storage.reading import parse_columns

    columns = parse_columns(arguments.column)
    expected = read_tasks(arguments.tasks) if arguments.tasks else None
    reported = None if arguments.reported is None else arguments.reported / 100
    audits = [audit(log, expected, reported) for path in arguments.paths for log in read_logs(path, columns)]
    if arguments.json:
        sys.stdout.write(json.dumps({"audits": [asdict(one) for one in audits]}, indent=2) + "\n")
    else:
        console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
        for one in audits:
            print_audit(console, one)
    return int(any(one.violations for one in audits))


def print_audit(console: Console, one: Audit) -> None:
    """Print the report about one log; its texts are untrusted."""
    from rich import box
    from rich.table import Table

    from hgpo.evaluation.result_files import percent

    splits = ", ".join(f"{visible(split)} {number}" for split, number in one.splits.items())
    console.print(
        f"{visible(one.log)}: {counted(one.tasks, 'task')} ({splits}), seeds: {_listed(one.seeds) or 'not recorded'}"
    )
    console.print(f"evaluation set: {visible(one.evaluation_set or 'unknown')}, {counted(one.expected, 'task')}")
    console.print(f"success: {one.success_rule}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    names = ("checkpoint", "episodes", "tasks", "plays of a task", "success", "95 % CI over tasks", "mean of episodes")
    for name in names:
        table.add_column(name, justify="right")
    for each in one.passes:
        success = each.success
        table.add_row(
            "–" if each.checkpoint is None else str(each.checkpoint),
            str(each.episodes),
            str(success.tasks),
            str(each.plays),
            percent(success.mean),
            f"{percent(success.low)} to {percent(success.high)}",
            percent(each.by_episode),
        )
    console.print(table)
    if one.peak is not None and one.last is not None and one.mean is not None:
        console.print(
            f"checkpoints: peak {percent(one.peak)}, last {percent(one.last)}, mean {percent(one.mean)}; the peak "
            f"exceeds the last by {100 * (one.peak - one.last):.1f} points"
        )
    if one.reported_is:
        console.print(f"the reported figure is {one.reported_is}")
    for note in one.notes:
        console.print(f"note: {note}")
    _print_violations(console, one)


def _print_violations(console: Console, one: Audit) -> None:
    for violation in one.violations:
        console.print(f"violation: {violation.kind}: {counted(len(violation.tasks), 'task')} {KINDS[violation.kind]}")
        console.print(f"  {_named(violation.tasks)}")
    last = one.passes[-1]
    if last.more:
        console.print(f"to equalise: play {counted(len(last.more), 'task')} more: {_named(last.more)}")
    if last.fewer:
        console.print(f"to equalise: leave out plays of {counted(len(last.fewer), 'task')}: {_named(last.fewer)}")
    unchecked = "" if one.evaluation_set else "; the tasks were compared with no evaluation set (--tasks names one)"
    console.print(f"no violation{unchecked}\n" if not one.violations else "")


def _named(tasks: Mapping[str, object]) -> str:
    """The first tasks, each with what is said of it."""
    return _listed(
        [f"{visible(task)} ({visible(str(said))})" if said else visible(task) for task, said in tasks.items()]
    )


def _listed(names: Sequence[str]) -> str:
    further = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + further
