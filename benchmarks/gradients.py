"""How close the batch gradient of each estimator comes to the true policy gradient, on real tasks with a real policy.

    python benchmarks/gradients.py play runs/quickstart POOL --checkpoint start --first 12000     # minutes to an hour
    python benchmarks/gradients.py align POOL --json benchmarks/gradients.json
    python benchmarks/gradients.py keys POOL                                       # what each state key merges

`play` makes a pool: many rollouts of each task with a sketch of the gradient of each step; an interrupted pool goes on.
`align` compares every estimator, with every state key and number of rollouts, with the true gradient of the same tasks
and of other tasks; tasks are the units of its intervals. docs/results/gradients.md has the tables.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hgpo.rollout.records import to_step_batch
from hgpo.steps import StepBatch
from true_gradient.alignment import FIGURES, TaskGradients, compare, products
from true_gradient.contenders import CONTENDERS, PUBLISHED, true_gradient_weights
from true_gradient.pools import PoolPart, PoolSettings, make_pool, open_player, read_pool, read_settings
from true_gradient.replay import KEYS

SIZES = (4, 8, 32)
REFERENCES = ("gigpo / observation", "g2po / published_g2po", "graphgpo / published_g2po")


def batch_of(part: PoolPart, key: str, size: int) -> StepBatch:
    """The steps of a part as groups of `size` rollouts of one task; groups are named (task, number of the batch)."""
    records = part.steps.records(key)
    group = [(step.task_id, int(step.trajectory.rpartition("#")[2]) // size) for step in records]
    batch = to_step_batch(records)
    return StepBatch.from_columns(
        group=group,
        trajectory=batch.trajectory,
        step=batch.step,
        observation=batch.observation,
        reward=batch.reward,
        action=batch.action,
        penalty=batch.penalty,
        next_observation=batch.next_observation,
        success=batch.success,
    )


def sums(part: PoolPart, batch: StepBatch, advantage_N: Any) -> dict[tuple[str, int], Any]:
    """{(task, number of the batch): sum of advantage times sketched gradient, float32[W]}."""
    weighted = np.asarray(advantage_N, dtype=np.float32)
    order = np.argsort(batch.group, kind="stable")
    starts = np.flatnonzero(np.diff(batch.group[order], prepend=-1))
    labels: Any = batch.labels["group"]
    return {labels[batch.group[rows[0]]]: weighted[rows] @ part.sketch_NW[rows] for rows in np.split(order, starts[1:])}


def align(pool: Path, size: int, keys: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The figures of all contenders with one size of groups."""
    settings = read_settings(pool)
    player = open_player(settings)
    found: dict[str, dict[tuple[str, int], Any]] = {f"{name} / {key}": {} for name in names for key in keys}
    true: dict[tuple[str, int], Any] = {}
    for part in track(list(read_pool(pool, player, keys)), f"{pool.name}, {size} rollouts"):
        halves = batch_of(part, keys[0], settings.rollouts // 2)
        true |= sums(part, halves, true_gradient_weights(halves) * 2 / settings.rollouts)
        for key in keys:
            batch = batch_of(part, key, size)
            for name in names:
                found[f"{name} / {key}"] |= sums(part, batch, CONTENDERS[name](batch))
    tasks = sorted({task for task, _ in true})
    true_T2W = np.array([[true[task, half] for half in (0, 1)] for task in tasks])
    numbers = range(settings.rollouts // size)
    result = {
        name: products(TaskGradients(np.array([[of[task, n] for n in numbers] for task in tasks]), true_T2W))
        for name, of in found.items()
    }
    return compare(result, REFERENCES)


def show(figures: dict[str, Any], title: str, console: Console) -> None:
    table = Table("estimator", "state key", *FIGURES, title=title)
    for name, of in sorted(figures.items(), key=lambda pair: -pair[1][FIGURES[0]][""].value):
        intervals = [of[figure][""] for figure in FIGURES]
        cells = [f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in intervals]
        table.add_row(*name.split(" / "), *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("play", help="make a pool of rollouts")
    play.add_argument("run", help="the run whose policy plays")
    play.add_argument("pool", type=Path, help="folder of the pool")
    play.add_argument("--checkpoint", default="start", help="start, newest or an update's number (default: start)")
    play.add_argument("--split", default="train", help="of the tasks (default: train)")
    for name, number in (("first", 0), ("tasks", 128), ("rollouts", 64), ("at-once", 8), ("seed", 0)):
        play.add_argument(f"--{name}", type=int, default=number, help=f"default: {number}")
    play.add_argument("--parameters", nargs="*", default=(), help="parts of the names of parameters (default: all)")
    compare_parser = commands.add_parser("align", help="compare the estimators' gradients with the true one")
    compare_parser.add_argument("pool", type=Path)
    compare_parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="rollouts of a task in a batch")
    compare_parser.add_argument("--keys", nargs="+", choices=KEYS, default=KEYS)
    compare_parser.add_argument("--estimators", nargs="+", choices=CONTENDERS, default=list(PUBLISHED))
    compare_parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    if arguments.command == "play":
        named = {name: getattr(arguments, name) for name in ("run", "checkpoint", "split", "first", "tasks")}
        named |= {name: getattr(arguments, name) for name in ("rollouts", "at_once", "seed")}
        make_pool(arguments.pool, PoolSettings(**named, parameters=tuple(arguments.parameters)))
        return
    found = {size: align(arguments.pool, size, arguments.keys, arguments.estimators) for size in arguments.sizes}
    for size, figures in found.items():
        show(figures, f"{arguments.pool.name}: {size} rollouts of each task", Console())
    if arguments.json:
        write(arguments.json, arguments.pool.name, found)


def write(path: Path, pool: str, found: dict[int, dict[str, Any]]) -> None:
    """Add the figures of a pool to a file."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    stored[pool] = {
        str(size): {
            name: {figure: {other: asdict(one) for other, one in of.items()} for figure, of in by_figure.items()}
            for name, by_figure in figures.items()
        }
        for size, figures in found.items()
    }
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
