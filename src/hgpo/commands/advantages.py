"""``hgpo advantages``: the estimators on stored rollouts, without model or environment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

DESCRIPTION = """\
Compute advantages from stored rollouts alone: a run directory, a parquet or JSONL file, or a folder of them. Needed
columns: group, trajectory, step, observation, reward; used where present: action, prompt, penalty, value,
next_observation, success.

examples:
  hgpo advantages runs/quickstart --estimator hgpo -o advantages.parquet
  hgpo advantages rollouts.jsonl --estimator hgpo --option preset=verl-agent --option history_length=4
  hgpo advantages rollouts.parquet --estimator gigpo --gamma 0.95
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
    parser.add_argument("-o", "--output", type=Path, help="write the rows with the new columns here (.parquet, .jsonl)")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    import pyarrow as pa

    from hgpo.config import apply_override
    from hgpo.estimators import compute_advantages
    from hgpo.rollout.storage import read_table, step_batch_from_table, write_table

    if arguments.output is not None and arguments.output.exists() and not arguments.force:
        raise ValueError(f"{arguments.output} exists already; choose another name or add --force")
    options: dict[str, Any] = {}
    for option in arguments.option:
        apply_override(options, option)
    table = read_table(arguments.rollouts)
    batch = step_batch_from_table(table, str(arguments.rollouts))
    advantages = compute_advantages(batch, estimator=arguments.estimator, gamma=arguments.gamma, **options)
    print_summary(arguments.estimator, advantages)
    if arguments.output is not None:
        columns: dict[str, Any] = {"advantage": advantages.values, "return": advantages.returns}
        for level in advantages.levels:
            columns |= {
                f"level_{level.k}_group": level.group,
                f"level_{level.k}_size": level.size,
                f"level_{level.k}_advantage": level.advantage,
                f"level_{level.k}_weight": level.weight,
            }
        table = table.drop_columns([name for name in columns if name in table.column_names])
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values))
        write_table(arguments.output, table)
    return 0


def print_summary(estimator: str, advantages: Any) -> None:
    """Spread of the advantages, and what each level had to work with."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    values = advantages.values
    console.print(
        f"{estimator}: {len(values):,} steps, advantage mean {values.mean():+.4f}, deviation {values.std():.4f}, "
        f"range {values.min():+.3f} to {values.max():+.3f}, exactly 0 for {100 * (values == 0).mean():.1f} %",
        highlight=False,
    )
    if advantages.levels:
        table = Table("level", "groups", "mean size", "steps in a group of 2 or more", "mean weight")
        for level in advantages.levels:
            table.add_row(
                str(level.k),
                f"{len(set(level.group.tolist())):,}",
                f"{level.size.mean():.2f}",
                f"{100 * (level.size > 1).mean():.1f} %",
                f"{level.weight.mean():.3f}",
            )
        console.print(table)
