"""`hgpo advantages`: advantages of stored rollouts, without a model or an environment."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.cli import add_estimator_argument, add_file_arguments, add_option_argument, check_output, parse_given
from hgpo.utils.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from hgpo.estimators import Advantages
    from hgpo.estimators.base import Level
    from hgpo.estimators.diagnostics import BatchSummary
    from hgpo.storage.discover import StepFile
    from hgpo.storage.reading import StoredBatch

DESCRIPTION = """\
Compute advantages from stored rollouts, without a model or an environment. ROLLOUTS is a run directory, a parquet or
JSONL file, a folder of such files, files with one trajectory or conversation per line, or rollout dumps of verl. Each
file is one batch (one update): steps of different files are never compared.

Required columns: group, trajectory, step, observation, reward. Optional: action, prompt, penalty, value, bootstrap,
next_observation, success, response_log_prob, truncated. action, next_observation and truncated may be empty; the
others must be in all rows of a file or in none.

Prints figures of the groups of every level of each update (docs/inspect.md explains them). --output writes the rows
with these columns added:

  advantage, return     the final advantage and the discounted return of the step
  level_K_group         number of the step's group at level K; -1: no group
  level_K_size          steps in the group, this one included; 0: no group
  level_K_trajectories  different trajectories in the group
  level_K_mean, _std    mean and deviation of the values compared in the group, mostly the returns; empty: no group
  level_K_advantage     advantage inside the group
  level_K_weight        weight of that advantage
  level_K_unused        why the level is unused for the step: no_context (fewer than K steps before it), alone (in its
                        group), dropped (its advantage is 0), only_trajectory (of the task); empty: used
  episode_…             the same for the episode level, if the estimator has one
  update                number of the file, if there are several
  state_key             what states are compared by, with --state

examples:
  hgpo advantages runs/quickstart --estimator hgpo -o advantages.parquet
  hgpo advantages rollouts.jsonl --estimator hgpo --option preset=verl-agent --option history_length=4
  hgpo advantages rollouts.parquet --estimator gigpo --gamma 0.95
  hgpo advantages rollouts.parquet --estimator my_module:ESTIMATOR --json
  hgpo advantages conversations.jsonl --trajectories --state tool_call
  hgpo advantages verl_dumps/ --column observation=input --column final_reward=score --estimator grpo
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("rollouts", type=Path, metavar="ROLLOUTS", help="run directory, file, or folder of files")
    add_estimator_argument(parser, "the estimator (default: hgpo)", "hgpo")
    parser.add_argument("--gamma", type=float, default=0.95, help="discount of the step return (default: 0.95)")
    add_option_argument(parser, "estimator")
    add_file_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, help="write the rows with the new columns here (.parquet, .jsonl)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from hgpo.estimators import compute_advantages, parse_options
    from hgpo.estimators.diagnostics import summarise_levels
    from hgpo.runs.folder import state_key_of_run
    from hgpo.runs.metrics import missing_notes
    from hgpo.storage.discover import find_step_files
    from hgpo.storage.reading import parse_columns
    from hgpo.storage.schema import suffix_of
    from hgpo.storage.tables import write_table

    if arguments.output is not None:
        suffix_of(arguments.output, written=True)
        check_output(arguments.output, overwrite=arguments.force)
    options, state = parse_given(arguments.option), arguments.state or state_key_of_run(arguments.rollouts)
    parse_options(arguments.estimator, **options)  # before files are read
    columns = parse_columns(arguments.column)
    files = find_step_files(arguments.rollouts, arguments.format, columns=columns)
    stored, state_lines = _read(files, columns, state)
    for note in missing_notes(arguments.rollouts):
        sys.stderr.write(f"{note}\n")
    computed = [
        compute_advantages(steps.batch, estimator=arguments.estimator, gamma=arguments.gamma, **options)
        for steps in stored
    ]
    if arguments.output is not None:
        table = with_advantages(stored, computed)
        write_table(arguments.output, table)
    summaries = {
        steps.update: summarise_levels(steps.batch, advantages)
        for steps, advantages in zip(stored, computed, strict=True)
    }
    if arguments.json:
        described = {"estimator": arguments.estimator, "gamma": arguments.gamma, "options": arguments.option}
        described |= {"state": state, "state_lines": state_lines}
        batches = [
            {"update": update if files[0].unit else None} | summary.to_dict() for update, summary in summaries.items()
        ]
        sys.stdout.write(json.dumps(described | {"batches": batches}, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in state_lines)
        print_summaries(arguments.estimator, summaries, files[0].unit)
    if arguments.output is not None:
        added = [name for name in table.column_names if _ADDED_COLUMNS.fullmatch(name)]
        replaced = [name for steps in stored for name in steps.table.column_names if _ADDED_COLUMNS.fullmatch(name)]
        instead = f", in place of the input's {_in_short(replaced)}" if replaced else ""
        # --json prints nothing else on standard output
        (sys.stderr if arguments.json else sys.stdout).write(
            f"Wrote {arguments.output}: {counted(table.num_rows, 'row')}, {counted(table.num_columns, 'column')}, "
            f"{len(added)} of them computed: {_in_short(added)}{instead}\n"
        )
    return 0


def _read(
    files: Sequence[StepFile], columns: Mapping[str, str], state: str | None
) -> tuple[list[StoredBatch], list[str]]:
    """The steps of the files, compared by the key `state` if there is one, and lines that say what the key matched."""
    from hgpo.rollout.keyed_steps import describe_matches, keyed_steps
    from hgpo.storage.reading import read_batch

    stored = [read_batch(file, columns) for file in files]
    if not state:
        return stored, []
    keyed = [keyed_steps(steps.batch, state) for steps in stored]
    stored = [replace(s, batch=batch, observed=s.batch) for s, (batch, _) in zip(stored, keyed, strict=True)]
    return stored, describe_matches([found for _, found in keyed])


def _in_short(columns: Sequence[str]) -> str:
    """Names of columns, those of one level as one."""
    return ", ".join(dict.fromkeys(re.sub(r"^(episode|level_\d+)_.*", r"\1_…", name) for name in columns))


def with_advantages(stored: Sequence[StoredBatch], computed: Sequence[Advantages]) -> pa.Table:
    """The rows of all files with the new columns; those of several files get a column `update` if theirs has none."""
    from hgpo.storage.tables import join_tables

    tables = []
    groups: Counter[int | None] = Counter()  # per level, the number in earlier files
    for steps, advantages in zip(stored, computed, strict=True):
        has_update = len(stored) == 1 or "update" in steps.table.column_names
        added: dict[str, Any] = {} if has_update else {"update": [steps.update] * len(steps.batch)}
        if steps.observed is not None:
            added["state_key"] = [steps.batch.labels["observation"][code] for code in steps.batch.observation]
        added |= {"advantage": advantages.values, "return": advantages.returns}
        for level in advantages.terms:
            added |= level_columns(level, groups[level.k])
            groups[level.k] += int(level.group.max()) + 1
        tables.append(with_columns(steps.table, added))
    return join_tables(tables, [steps.path for steps in stored])


_ADDED_COLUMNS = re.compile(
    r"advantage|return|(episode|level_\d+)_(group|size|trajectories|mean|std|advantage|weight|unused)"
)


def level_columns(level: Level, first_group: int = 0) -> dict[str, Any]:
    """The output columns of one level, N values each; see `DESCRIPTION`. Groups are numbered from `first_group`."""
    import numpy as np
    import pyarrow as pa

    from hgpo.estimators.base import Unused

    prefix = "episode" if level.k is None else f"level_{level.k}"
    reasons = np.array([None, *(reason.name.lower() for reason in Unused if reason)], dtype=object)
    return {
        f"{prefix}_group": np.where(level.group < 0, level.group, level.group + first_group),
        f"{prefix}_size": level.size,
        f"{prefix}_trajectories": level.trajectories,
        f"{prefix}_mean": pa.array(level.mean, from_pandas=True),  # from_pandas: NaN becomes null
        f"{prefix}_std": pa.array(level.std, from_pandas=True),
        f"{prefix}_advantage": level.advantage,
        f"{prefix}_weight": level.weight,
        f"{prefix}_unused": pa.array(reasons[level.unused], type=pa.string()),
    }


def with_columns(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    """The table with the new columns, without those of an earlier call (which may have had more levels)."""
    import pyarrow as pa

    table = table.drop_columns(
        [name for name in table.column_names if name in columns or _ADDED_COLUMNS.fullmatch(name)]
    )
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def print_summaries(estimator: str, summaries: Mapping[int, BatchSummary], unit: str) -> None:
    """Print the spread of the advantages of each update (or other `unit` of several files) and its levels' figures."""
    from rich.console import Console

    from hgpo.estimators.diagnostics import LEVEL_HEADINGS, starts_note
    from hgpo.report.summary import figure_text, level_table

    several = len(summaries) > 1
    width = 110 if several else 100  # "20: episode" in the first column needs more
    console = Console(highlight=False, width=None if sys.stdout.isatty() else width)
    for update, summary in summaries.items():
        console.print(
            f"{f'{unit} {update}, ' if several else ''}{estimator}: {counted(summary.steps, 'step')} of "
            f"{counted(summary.trajectories, 'trajectory', 'trajectories')}, {counted(summary.tasks, 'task')}\n"
            f"advantage mean {summary.advantage_mean:+z.4f}, deviation {summary.advantage_deviation:.4f}, range "
            f"{summary.advantage_min:+z.3f} to {summary.advantage_max:+z.3f}, exactly 0 for "
            f"{100 * summary.advantage_zero_share:.1f} %"
        )
        if note := starts_note(summary.unequal_starts / summary.tasks):
            console.print(note)
    terms = [(update, level) for update, summary in summaries.items() for level in summary.terms]
    if not terms:
        return
    console.print("levels: " + "; ".join(dict.fromkeys(f"{level.label}, {level.name}" for _, level in terms)))
    figures = list(LEVEL_HEADINGS)
    groups = figures.index("groups")
    for title, names in (
        ("Levels: shares of steps, and shares of the variance of the returns explained", figures[:groups]),
        ("Groups: number, size for a step, prompts; weight of the level", figures[groups:]),
    ):
        table = level_table(title, names, f"{unit}:\nlevel" if several else "\nlevel")
        for update, level in terms:
            label = f"{update}: {level.label}" if several else level.label
            table.add_row(label, *(figure_text(name, getattr(level, name)) for name in names))
        console.print(table)
