"""`hgpo advantages`: advantages of stored rollouts, without a model or an environment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.cli import add_file_arguments, add_option_argument, check_output, parse_given
from hgpo.utils.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from hgpo.columns import IntArray
    from hgpo.estimators import Advantages
    from hgpo.estimators.base import Level
    from hgpo.estimators.diagnostics import BatchSummary, LevelSummary
    from hgpo.steps import StepBatch
    from hgpo.storage.reading import StoredBatch

DESCRIPTION = """\
Compute advantages from stored rollouts, without a model or an environment. ROLLOUTS is a run directory, a parquet or
JSONL file, a folder of such files, files with one trajectory or conversation per line, or rollout dumps of verl. Each
file is one batch (one update): steps of different files are never compared.

Required columns: group, trajectory, step, observation, reward. Optional: action, prompt, penalty, value,
next_observation, success. penalty, value, success and prompt must be in all rows of a file or in none; action and
next_observation may be empty.

Prints figures of the groups of every level (docs/inspect.md explains them). --output writes the rows with these
columns added:

  advantage, return     the final advantage and the discounted return of the step
  level_K_group         number of the step's group at level K; -1: no group
  level_K_size          steps in the group, this one included; 0: no group
  level_K_trajectories  different trajectories in the group
  level_K_mean, _std    of the values compared in the group, for most estimators the returns; empty: no group
  level_K_advantage     advantage inside the group
  level_K_weight        weight of that advantage
  level_K_unused        why the level is unused for the step: no_context (fewer than K steps before it), alone (in its
                        group), dropped (its advantage is 0), only_trajectory (of the task); empty: used
  episode_…             the same for the episode level, if the estimator has one
  update                number of the file, if there are several

examples:
  hgpo advantages runs/quickstart --estimator hgpo -o advantages.parquet
  hgpo advantages rollouts.jsonl --estimator hgpo --option preset=verl-agent --option history_length=4
  hgpo advantages rollouts.parquet --estimator gigpo --gamma 0.95
  hgpo advantages rollouts.parquet --json
  hgpo advantages conversations.jsonl --trajectories
  hgpo advantages verl_dumps/ --column observation=input --column final_reward=score --estimator grpo
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    from hgpo.estimators import names

    parser.description = DESCRIPTION
    parser.add_argument("rollouts", type=Path, help="run directory, file, or folder of files")
    parser.add_argument("--estimator", default="hgpo", choices=names(), help="the estimator (default: hgpo)")
    parser.add_argument("--gamma", type=float, default=0.95, help="discount of the step return (default: 0.95)")
    add_option_argument(parser, "estimator")
    add_file_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, help="write the rows with the new columns here (.parquet, .jsonl)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb and return the exit status."""
    from hgpo.estimators import compute_advantages
    from hgpo.estimators.diagnostics import summarise_levels
    from hgpo.runs.metrics import missing_notes
    from hgpo.storage.discover import find_step_files
    from hgpo.storage.reading import parse_columns, read_batch
    from hgpo.storage.schema import suffix_of
    from hgpo.storage.tables import write_table

    if arguments.output is not None:
        suffix_of(arguments.output)
        check_output(arguments.output, overwrite=arguments.force)
    options = parse_given(arguments.option)
    columns = parse_columns(arguments.column)
    stored = [read_batch(file, columns) for file in find_step_files(arguments.rollouts, arguments.format)]
    table = joined_table(stored) if arguments.output is not None else None
    for note in missing_notes(arguments.rollouts):
        sys.stderr.write(f"{note}\n")
    computed = [
        compute_advantages(steps.batch, estimator=arguments.estimator, gamma=arguments.gamma, **options)
        for steps in stored
    ]
    batch, advantages = joined([steps.batch for steps in stored], computed)
    if table is not None:
        added: dict[str, Any] = {"advantage": advantages.values, "return": advantages.returns}
        for level in advantages.terms:
            added |= level_columns(dataclasses.replace(level, batch_trajectory=batch.trajectory))
        write_table(arguments.output, with_columns(table, added))
    summary = summarise_levels(batch, advantages)
    updates = [steps.update for steps in stored]
    if arguments.json:
        described = {"estimator": arguments.estimator, "gamma": arguments.gamma, "options": arguments.option}
        sys.stdout.write(json.dumps(described | {"updates": updates} | summary.to_dict(), indent=2) + "\n")
    else:
        print_summary(arguments.estimator, summary, len(updates))
    return 0


def joined_table(stored: Sequence[StoredBatch]) -> pa.Table:
    """The rows of all files; those of several files get a column `update`, if they have none."""
    import pyarrow as pa

    from hgpo.storage.tables import join_tables

    tables = [steps.table for steps in stored]
    if len(stored) > 1 and not any("update" in table.column_names for table in tables):
        updates = [pa.array([steps.update] * steps.table.num_rows, pa.int64()) for steps in stored]
        tables = [table.append_column("update", update) for table, update in zip(tables, updates, strict=True)]
    return join_tables(tables, [steps.path for steps in stored])


def joined(batches: Sequence[StepBatch], computed: Sequence[Advantages]) -> tuple[StepBatch, Advantages]:
    """Several batches and their advantages as one, for figures over all steps.

    Rows keep their order. Groups and trajectories are renumbered, so that none spans two batches. The batch has
    only the columns that the figures use.
    """
    import numpy as np

    from hgpo.estimators import Advantages
    from hgpo.steps import StepBatch

    if len(batches) == 1:
        return batches[0], computed[0]
    first_row = np.cumsum([0, *map(len, batches)])

    def numbered(column: str) -> Any:
        numbers = [getattr(batch, column) for batch in batches]
        if any(part is None for part in numbers):
            return None
        offsets = np.cumsum([0, *(int(part.max()) + 1 for part in numbers)])
        return np.concatenate([part + offset for part, offset in zip(numbers, offsets, strict=False)])

    batch = StepBatch.from_columns(
        **{name: numbered(name) for name in ("group", "trajectory", "observation", "prompt")},
        step=np.concatenate([batch.step for batch in batches]),
        reward=np.concatenate([batch.reward for batch in batches]),
    )
    terms = [_joined_level(levels, first_row) for levels in zip(*(part.terms for part in computed), strict=True)]
    has_episode = computed[0].episode is not None
    return batch, Advantages(
        np.concatenate([part.values for part in computed]),
        np.concatenate([part.returns for part in computed]),
        tuple(terms[1:] if has_episode else terms),
        terms[0] if has_episode else None,
    )


def _joined_level(parts: Sequence[Level], first_row: IntArray) -> Level:
    """One level of several batches; `first_row` has the number of the first row of each."""
    import numpy as np

    def column(values: Sequence[Any], default: Any = None) -> Any:
        """The values of all parts, in group order; `default` replaces None in some of them."""
        if all(value is None for value in values):
            return None
        filled = [default if value is None else value for value in values]
        return np.concatenate([np.broadcast_to(v, len(part.row_N)) for v, part in zip(filled, parts, strict=True)])

    compared = [part.compared for part in parts]
    has_magnitudes = any(values.magnitude_N is not None for values in compared)
    return dataclasses.replace(
        parts[0],
        row_N=np.concatenate([part.row_N + row for part, row in zip(parts, first_row, strict=False)]),
        starts_N=column([part.starts_N for part in parts]),
        compared=dataclasses.replace(
            compared[0],
            value_N=column([values.value_N for values in compared]),
            magnitude_N=column([values.summed_N for values in compared]) if has_magnitudes else None,
            share_N=column([values.share_N for values in compared], default=1.0),
        ),
        advantage_N=column([part.advantage_N for part in parts]),
        weight_N=column([part.weight_N for part in parts]),
        used_N=column([part.used_N for part in parts]),
        present_N=column([part.present_N for part in parts], default=True),
    )


_ADDED_COLUMNS = re.compile(
    r"advantage|return|(episode|level_\d+)_(group|size|trajectories|mean|std|advantage|weight|unused)"
)


def level_columns(level: Level) -> dict[str, Any]:
    """The output columns of one level, N values each; see `DESCRIPTION`."""
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
    """The table with the new columns, without those of an earlier call (which may have had more levels)."""
    import pyarrow as pa

    table = table.drop_columns([name for name in table.column_names if _ADDED_COLUMNS.fullmatch(name)])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


_USE = (
    *("usable", "no\ncontext", "alone", "dropped", "mean\nweight", "explained,\nraw", "explained,\nadjusted"),
    *("sign as\nprevious", "sign as\nfinal"),
)
_SIZES = ("groups", "single", "mean\nsize", "trajec-\ntories", "10 %", "50 %", "90 %", "largest", "prompts\ndiffer")


def print_summary(estimator: str, summary: BatchSummary, updates: int) -> None:
    """Print the spread of the advantages and the figures of each level."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(
        f"{estimator}: {counted(summary.steps, 'step')} of "
        f"{counted(summary.trajectories, 'trajectory', 'trajectories')}, {counted(summary.tasks, 'task')} in "
        f"{counted(updates, 'update')}\n"
        f"advantage mean {summary.advantage_mean:+.4f}, deviation {summary.advantage_deviation:.4f}, range "
        f"{summary.advantage_min:+.3f} to {summary.advantage_max:+.3f}, exactly 0 for "
        f"{percent(summary.advantage_zero_share)}"
    )
    if not summary.terms:
        return
    console.print("levels: " + "; ".join(f"{level.label}, {level.name}" for level in summary.terms))
    for title, headings, cells in (
        ("Levels: shares of steps, and shares of the variance of the returns explained", _USE, _use),
        ("Groups: number, size for a step, prompts", _SIZES, _sizes),
    ):
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("\nlevel")
        for heading in headings:
            table.add_column(heading if "\n" in heading else f"\n{heading}", justify="right", no_wrap=True)
        for level in summary.terms:
            table.add_row(level.label, *cells(level))
        console.print(table)


def _use(level: LevelSummary) -> list[str]:
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
