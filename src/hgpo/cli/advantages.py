"""`hgpo advantages`: the estimators on stored rollouts, without model or environment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.cli import add_file_arguments

if TYPE_CHECKING:
    import pyarrow as pa

    from hgpo.estimators.base import Level
    from hgpo.estimators.diagnostics import BatchSummary, LevelSummary

DESCRIPTION = """\
Compute advantages from stored rollouts alone: a run directory, a parquet or JSONL file, a folder of them, files with
one trajectory or conversation a line, or the rollout dumps of verl. Needed columns: group, trajectory, step,
observation, reward; used where present: action, prompt, penalty, value, next_observation, success. What a row lacks of
penalty, value, success or prompt, all rows have to lack;
action and next_observation may be missing where there is none.

Prints what the groups of every level had to say (docs/inspect.md explains each figure). --output writes the rows
with these columns added:

  advantage, return     the final advantage and the discounted return of the step
  level_K_group         number of the step's group at level K; -1: it has none
  level_K_size          members of the group, the step included; 0: none
  level_K_trajectories  different trajectories among them
  level_K_mean, _std    of what is compared in the group, the returns for most estimators; empty: no group
  level_K_advantage     advantage inside the group
  level_K_weight        what it was multiplied by
  level_K_unused        why the level said nothing about the step: no_context (fewer than K steps came before), alone
                        (in its group), dropped (its advantage is 0), only_trajectory (of the task); empty: it is used
  episode_…             the same for the episode level, where the estimator has one

examples:
  hgpo advantages runs/quickstart --estimator hgpo -o advantages.parquet
  hgpo advantages rollouts.jsonl --estimator hgpo --option preset=verl-agent --option history_length=4
  hgpo advantages rollouts.parquet --estimator gigpo --gamma 0.95
  hgpo advantages rollouts.parquet --json
  hgpo advantages conversations.jsonl --trajectories
  hgpo advantages verl_dumps/ --column observation=input --column final_reward=score --estimator grpo
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    from hgpo.estimators import names

    parser.description = DESCRIPTION
    parser.add_argument("rollouts", type=Path, help="run directory, file, or folder of files")
    parser.add_argument("--estimator", default="hgpo", choices=names(), help="which estimator (default: hgpo)")
    parser.add_argument("--gamma", type=float, default=0.95, help="discount of the step return (default: 0.95)")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the estimator; repeatable"
    )
    add_file_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, help="write the rows with the new columns here (.parquet, .jsonl)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    from hgpo.config import apply_override
    from hgpo.estimators import compute_advantages
    from hgpo.estimators.diagnostics import summarise_levels
    from hgpo.runs.metrics import missing_notes
    from hgpo.storage.reading import parse_columns, read_steps
    from hgpo.storage.schema import check_output
    from hgpo.storage.step_batches import step_batch_from_table
    from hgpo.storage.tables import check_writable, write_table

    if arguments.output is not None:
        check_output(arguments.output, arguments.force)
    options: dict[str, Any] = {}
    for option in arguments.option:
        apply_override(options, option)
    steps = read_steps(arguments.rollouts, arguments.format, parse_columns(arguments.column))
    if arguments.output is not None:
        check_writable(arguments.output, steps.table.schema)
    for note in missing_notes(arguments.rollouts):
        sys.stderr.write(f"{note}\n")
    batch = step_batch_from_table(steps.table, str(arguments.rollouts), steps.place)
    advantages = compute_advantages(batch, estimator=arguments.estimator, gamma=arguments.gamma, **options)
    if arguments.output is not None:
        columns: dict[str, Any] = {"advantage": advantages.values, "return": advantages.returns}
        for level in advantages.terms:
            columns |= level_columns(dataclasses.replace(level, batch_trajectory=batch.trajectory))
        write_table(arguments.output, with_columns(steps.table, columns))
    summary = summarise_levels(batch, advantages)
    if arguments.json:
        described = {"estimator": arguments.estimator, "gamma": arguments.gamma, "options": arguments.option}
        sys.stdout.write(json.dumps(described | summary.to_dict(), indent=2) + "\n")
    else:
        print_summary(arguments.estimator, summary)
    return 0


_OUR_COLUMNS = re.compile(
    r"advantage|return|(episode|level_\d+)_(group|size|trajectories|mean|std|advantage|weight|unused)"
)


def level_columns(level: Level) -> dict[str, Any]:
    """The columns of one level by name, each [N]; null where the step has no group or the level is used."""
    import numpy as np
    import pyarrow as pa

    from hgpo.estimators.base import Unused

    prefix = "episode" if level.k is None else f"level_{level.k}"
    reasons = np.array([None, *(reason.name.lower() for reason in Unused if reason)], dtype=object)
    return {
        f"{prefix}_group": level.group,
        f"{prefix}_size": level.size,
        f"{prefix}_trajectories": level.trajectories,
        f"{prefix}_mean": pa.array(level.mean, from_pandas=True),  # from_pandas: NaN becomes null
        f"{prefix}_std": pa.array(level.std, from_pandas=True),
        f"{prefix}_advantage": level.advantage,
        f"{prefix}_weight": level.weight,
        f"{prefix}_unused": pa.array(reasons[level.unused], type=pa.string()),
    }


def with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The table with the new columns; those that an earlier call wrote, perhaps for more levels, are left out."""
    import pyarrow as pa

    table = table.drop_columns([name for name in table.column_names if _OUR_COLUMNS.fullmatch(name)])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


_SAID = (
    *("usable", "no\ncontext", "alone", "dropped", "mean\nweight", "variance\nexplained", "\nadjusted"),
    *("sign as\nprevious", "sign as\nfinal"),
)
_SIZES = ("groups", "single", "mean\nsize", "trajec-\ntories", "10 %", "50 %", "90 %", "largest", "prompts\ndiffer")


def print_summary(estimator: str, summary: BatchSummary) -> None:
    """Spread of the advantages, and what each level had to work with."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(
        f"{estimator}: {summary.steps:,} steps of {summary.trajectories:,} trajectories, {summary.tasks:,} tasks\n"
        f"advantage mean {summary.advantage_mean:+.4f}, deviation {summary.advantage_deviation:.4f}, range "
        f"{summary.advantage_min:+.3f} to {summary.advantage_max:+.3f}, exactly 0 for "
        f"{percent(summary.advantage_zero_share)}"
    )
    if not summary.terms:
        return
    console.print("levels: " + "; ".join(f"{level.label}, {level.name}" for level in summary.terms))
    for title, headings, cells in (
        ("What the levels had to say, in shares of steps", _SAID, _said),
        ("Their groups: how many, how large for a step, how alike", _SIZES, _sizes),
    ):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("\nlevel")
        for heading in headings:
            table.add_column(heading if "\n" in heading else f"\n{heading}", justify="right", no_wrap=True)
        for level in summary.terms:
            table.add_row(level.label, *cells(level))
        console.print(table)


def _said(level: LevelSummary) -> list[str]:
    return [
        percent(level.usable_share),
        percent(level.no_context_share),
        percent(level.alone_share + level.only_trajectory_share),
        percent(level.dropped_share),
        f"{level.mean_weight:.3f}",
        percent(level.variance_explained),
        percent(level.variance_explained_adjusted),
        percent(level.sign_agreement),
        percent(level.sign_agreement_final),
    ]


def _sizes(level: LevelSummary) -> list[str]:
    sizes = (level.size_p10, level.size_p50, level.size_p90, level.size_max)
    return [
        f"{level.groups:,}",
        percent(level.singleton_share),
        f"{level.mean_size:.2f}",
        f"{level.mean_trajectories:.2f}",
        *("–" if size is None else f"{size:,}" for size in sizes),
        percent(level.prompts_differ_groups),
    ]


def percent(share: float | None) -> str:
    """`0.4375` as `43.8 %`, None as a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"
