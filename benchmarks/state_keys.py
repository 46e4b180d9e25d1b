"""Is the observation the state? Groups the same steps by the observation's text, and by text and possible commands.

    hgpo train recipes/quickstart/hgpo.toml run.name=keyed rollout.state=observation_and_commands
    python benchmarks/state_keys.py runs/keyed --updates 1 10 30 50

Takes the stored rollouts of a run with that setting; from them the observation alone can be had back.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from hgpo.config import Config, load_config
from hgpo.estimators import compute_advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.rollout.prompts import COMMANDS_FOLLOW
from hgpo.runs.folder import RunDirectory
from hgpo.storage.reading import read_rollouts
from hgpo.storage.step_batches import step_batch_from_table

KEYS = ("observation", "observation_and_commands")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run that was trained with rollout.state=observation_and_commands")
    parser.add_argument("--updates", type=int, nargs="+", required=True, help="whose rollouts are read")
    arguments = parser.parse_args()
    run = RunDirectory(arguments.run)
    config = load_config(run.config)
    if config.rollout.state != KEYS[1]:
        raise SystemExit(f"{run.path} was trained with rollout.state={config.rollout.state}: it did not store commands")
    tables = [read_rollouts(run.rollout_file(update)) for update in arguments.updates]
    show(compare(tables, config), Console())
    text, share = commonest(tables)
    print(f"most often observed, in {share:.0%} of the steps: {text!r}")


def compare(tables: Sequence[pa.Table], config: Config) -> dict[str, dict[str, float]]:
    """{key: {figure of docs/reference/metrics.md: its mean over the updates}}, with HGPO's levels."""
    options = {"gamma": config.advantage.gamma, "history_length": config.agent.history_length}
    rows: dict[str, list[dict[str, float]]] = {key: [] for key in KEYS}
    for table in tables:
        for key, keyed in zip(KEYS, (by_observation(table), table), strict=True):
            batch = step_batch_from_table(keyed)
            rows[key].append(summarise_levels(batch, compute_advantages(batch, "hgpo", **options)).flat())
    return {
        key: {name: float(np.mean([row[name] for row in found])) for name in found[0] if all(name in r for r in found)}
        for key, found in rows.items()
    }


def by_observation(table: pa.Table) -> pa.Table:
    """The steps with the observation's text alone."""
    for name in ("observation", "next_observation"):
        texts = [text.rpartition(COMMANDS_FOLLOW)[0] for text in table.column(name).to_pylist()]
        table = table.set_column(table.column_names.index(name), name, [texts])
    return table


def commonest(tables: Sequence[pa.Table]) -> tuple[str, float]:
    """The observation that most steps saw, and their share."""
    seen = Counter(text for table in tables for text in by_observation(table).column("observation").to_pylist())
    [(text, steps)] = seen.most_common(1)
    return text, steps / seen.total()


def show(found: dict[str, dict[str, float]], console: Console) -> None:
    table = Table(
        "key", "level", "steps per group", "usable", "variance explained", "beyond chance", title_justify="left"
    )
    for key, figures in found.items():
        level = 0
        while f"group_size_{level}" in figures:
            table.add_row(
                key,
                str(level),
                f"{figures[f'group_size_{level}']:.1f}",
                f"{figures[f'group_usable_{level}']:.2f}",
                f"{figures[f'level_variance_explained_{level}']:.2f}",
                f"{figures[f'level_variance_explained_adjusted_{level}']:.2f}",
            )
            level += 1
    console.print(table)


if __name__ == "__main__":
    main()
