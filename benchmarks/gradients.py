"""How close the batch gradient of each estimator comes to the true policy gradient, on real tasks with a real policy.

    python benchmarks/gradients.py play runs/quickstart POOL --checkpoint start --first 12000     # minutes to an hour
    python benchmarks/gradients.py align POOL --json benchmarks/gradients.json
    python benchmarks/gradients.py update POOL --json benchmarks/updates.json --contenders "hgpo paper / observation" …
    python benchmarks/gradients.py branch POOL --json benchmarks/step_errors.json --steps 256

`play` makes a pool: many rollouts of each task with a sketch of the gradient of each step.
`align` compares every estimator, with every state key and number of rollouts, with the true gradient of the same tasks
and of other tasks; tasks are the units of its intervals. `update` carries out one update with each, of equal
divergence, and estimates the change of the probability to win. `branch` compares the advantages of single steps with
estimates from rollouts that start in the same state and history. An interrupted command continues when it is repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from hgpo.columns import FloatArray
from hgpo.rollout.records import StepRecord, by_trajectory, to_step_batch
from hgpo.steps import StepBatch
from hgpo.utils.files import whole_file, write_text
from paired import paired_difference
from stored_rows import json_rows, markdown_table
from true_gradient.alignment import FIGURES, Interval, compare, products
from true_gradient.branches import branch, errors, mean_over_steps, measured_steps, repeated, squared_bias
from true_gradient.contenders import CONTENDERS, SIMILAR, level_estimates, true_gradient_weights
from true_gradient.one_update import UpdatePlan, Updater, UpdateRows
from true_gradient.pools import KEYS, PoolPart, PoolSettings, make_pool, open_player, read_pool, read_settings

SIZES = (4, 8, 32)
STEPS_AT_ONCE = 16
Row = dict[str, Any]
Figures = dict[str, dict[str, dict[str, Interval]]]
"""See `true_gradient.alignment.compare`."""
REFERENCES = ("gigpo / observation", "hgpo paper / observation", "nested_td / published_g2po")
Sums = dict[str, NDArray[np.float32]]
"""Name of a group (`batch_of`) -> the sum over its steps of advantage times sketched gradient, float32[W]."""


def batch_of(part: PoolPart, key: str, size: int) -> StepBatch:
    """The steps of a part as groups of `size` rollouts of one task, named by `group_name`."""
    return to_step_batch(
        [
            replace(step, group=group_name(step.task_id, int(step.trajectory.rpartition("#")[2]) // size))
            for step in part.steps[key]
        ]
    )


def group_name(task: str, number: int) -> str:
    """The name of a task's batch of this number."""
    return f"{task}#{number}"


def sums(part: PoolPart, batch: StepBatch, advantage_N: FloatArray) -> Sums:
    """The batch gradients of a part."""
    weighted = np.asarray(advantage_N, dtype=np.float32)
    order = np.argsort(batch.group, kind="stable")
    starts = np.flatnonzero(np.diff(batch.group[order], prepend=-1))
    labels: Any = batch.labels["group"]
    return {labels[batch.group[rows[0]]]: weighted[rows] @ part.sketch_NW[rows] for rows in np.split(order, starts[1:])}


def align(
    pool: Path, sizes: Sequence[int], keys: Sequence[str], names: Sequence[str], references: Sequence[str] = REFERENCES
) -> dict[int, Figures]:
    """The figures of all contenders, and their differences to those of `references`, by size of groups."""
    settings = read_settings(pool)
    for size in sizes:
        if settings.rollouts % (2 * size):
            raise SystemExit(f"--sizes {size}: the two halves of {settings.rollouts} rollouts are no multiples of it")
    player = open_player(settings)
    found: dict[int, dict[str, Sums]] = {
        size: {f"{name} / {key}": {} for name in names for key in keys} for size in sizes
    }
    true: Sums = {}
    tasks: set[str] = set()
    for part in track(read_pool(pool, player, keys), pool.name, total=-(-settings.tasks // settings.at_once)):
        tasks |= {step.task_id for step in part.steps[keys[0]]}
        halves = batch_of(part, keys[0], settings.rollouts // 2)
        true |= sums(part, halves, true_gradient_weights(halves) * 2 / settings.rollouts)
        for size, key in itertools.product(sizes, keys):
            batch = batch_of(part, key, size)
            for name in names:
                found[size][f"{name} / {key}"] |= sums(part, batch, CONTENDERS[name](batch))

    def by_task(of: Sums, batches: int) -> NDArray[np.float32]:
        return np.array([[of[group_name(task, number)] for number in range(batches)] for task in sorted(tasks)])

    true_T2W = by_task(true, 2)
    return {
        size: compare(
            {name: products(by_task(of, settings.rollouts // size), true_T2W) for name, of in by_name.items()},
            references,
        )
        for size, by_name in found.items()
    }


def table(figures: Figures) -> str:
    """A row for each estimator and state key, the highest cosine on top."""
    lines = []
    for name, of in sorted(figures.items(), key=lambda pair: -pair[1][FIGURES[0]][""].value):
        intervals = [of[figure][""] for figure in FIGURES]
        lines.append([*name.split(" / "), *(f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in intervals)])
    return markdown_table(["estimator", "state key", *FIGURES], lines)


def changes_by_updates(pool: Path, options: argparse.Namespace) -> list[Row]:
    """Update once with every contender and batch that `updates.jsonl` of the pool lacks.

    Returns:
        For each contender the mean change of success in points on the updates' tasks and on all others, and the
        difference to the first contender with half of its 95 % CI over batches (Student's t).
    """
    pairs = [tuple(name.split(" / ")) for name in options.contenders]
    for name, key in pairs:
        if name not in CONTENDERS or key not in KEYS:
            raise SystemExit(f"{name} / {key}: an estimator of {', '.join(CONTENDERS)}; a key of {', '.join(KEYS)}")
    plan = UpdatePlan(options.tasks, options.size, options.divergence, options.evaluated, options.seed)
    rows = UpdateRows(pool / "updates.jsonl", plan)
    missing = [pair for pair in itertools.product(range(options.batches), pairs) if not rows.has(*pair)]
    if missing:
        updater = Updater.of_pool(pool, sorted({key for _, key in pairs}), plan)
        for number, pair in track(missing, f"{pool.name}: updating"):
            rows.add(number, pair, updater.change(number, *pair))
    first_B2 = rows.changes(pairs[0], options.batches)
    found = []
    for pair in pairs:
        change_B2 = rows.changes(pair, options.batches)
        row: Row = {"pool": pool.name, "estimator": pair[0], "key": pair[1], "batches": options.batches}
        for place, tasks in enumerate(("same tasks", "other tasks")):
            row[tasks] = round(float(change_B2[:, place].mean()), 2)
            lead = str(paired_difference(change_B2[:, place], first_B2[:, place])) if pair != pairs[0] else ""
            row[f"{tasks}, difference"] = lead
        found.append(row)
    return found


def branched_errors(pool: Path, options: argparse.Namespace) -> list[Row]:
    """The errors of every estimate of random steps of a pool, with one state key, by the set of steps."""
    player = open_player(read_settings(pool))
    records = [record for part in read_pool(pool, player, [options.key]) for record in part.steps[options.key]]
    by_id = {trajectory[0].trajectory: trajectory for trajectory in by_trajectory(records)}
    by_task: dict[str, list[list[StepRecord]]] = {}
    for trajectory in by_id.values():
        by_task.setdefault(trajectory[0].task_id, []).append(trajectory)
    rows = np.random.default_rng(options.seed).permutation(len(records))[: options.steps]
    begun = [by_id[records[row].trajectory][: records[row].step + 1] for row in rows]

    player = replace(player, rules=replace(player.rules, state=options.key))  # so that branches have the same key
    folder = pool / f"branches-{options.key}-{options.size}-{options.branches}-{options.seed}"
    folder.mkdir(exist_ok=True)
    parts = []
    for number, first in enumerate(track(range(0, len(begun), STEPS_AT_ONCE), "playing branches")):
        chosen, path = begun[first : first + STEPS_AT_ONCE], folder / f"{number:03d}-{options.steps}.npz"
        if not path.exists():
            rng = np.random.default_rng((options.seed, number))
            branched = branch(player, chosen, options.branches, rng)
            estimates = repeated(branched, by_task, options.size, level_estimates)
            with whole_file(path) as unfinished, unfinished.open("wb") as file:
                np.savez(file, **measured_steps(branched, estimates))
        with np.load(path) as stored:
            parts.append(dict(stored))
    measured = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    shared_S = (measured["size full history"] > 1).all(axis=1)
    subsets = {"all steps": np.ones_like(shared_S), "steps whose full history another rollout has": shared_S}
    tasks = np.array([records[row].task_id for row in rows])

    def less_bias(name: str, chosen_S: NDArray[np.bool_]) -> list[float]:
        lead_S = (squared_bias(measured, name) - squared_bias(measured, "level 0"))[chosen_S]
        task_S = np.unique(tasks[chosen_S], return_inverse=True)[1]
        return [round(value, 4) for value in astuple(mean_over_steps(lead_S, task_S, options.seed))]

    return [
        {"pool": pool.name, "key": options.key, "size": options.size, "of": subset, "estimate": name}
        | {figure: round(value, 4) for figure, value in errors(measured, name, chosen_S).items()}
        | {"squared bias minus level 0": less_bias(name, chosen_S)}
        for subset, chosen_S in subsets.items()
        if chosen_S.sum() > 1
        for name in (name.removeprefix("estimate ") for name in measured if name.startswith("estimate "))
    ]


def table_of(rows: list[Row]) -> str:
    """A table of rows with the same keys."""
    lines = ([f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows)
    return markdown_table(list(rows[0]), lines)


def replace_rows(path: Path, rows: list[Row], same: Sequence[str]) -> None:
    """Store rows in place of those with the same values of `same`, one line each."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    new = {tuple(row[name] for name in same) for row in rows}
    kept = [row for row in stored if tuple(row[name] for name in same) not in new]
    write_text(path, json_rows([*kept, *rows]) + "\n")


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
    compare_parser.add_argument(
        "--estimators", nargs="+", choices=CONTENDERS, default=[name for name in CONTENDERS if name not in SIMILAR]
    )
    compare_parser.add_argument(
        "--references", nargs="+", default=REFERENCES, metavar="'ESTIMATOR / KEY'", help="to subtract from the others"
    )
    compare_parser.add_argument("--json", type=Path, help="write the figures there")
    update = commands.add_parser("update", help="update once with each estimator, and estimate the change of success")
    update.add_argument("pool", type=Path)
    update.add_argument(
        "--contenders", nargs="+", required=True, metavar="'ESTIMATOR / KEY'", help="the first is compared with"
    )
    for name, number in (("batches", 8), ("tasks", 16), ("size", 8), ("evaluated", 16), ("seed", 0)):
        update.add_argument(f"--{name}", type=int, default=number, help=f"default: {number}")
    update.add_argument("--divergence", type=float, default=0.002, help="nats per token (default: 0.002)")
    branches = commands.add_parser("branch", help="compare single advantages with those of branched rollouts")
    branches.add_argument("pool", type=Path)
    branches.add_argument("--key", choices=KEYS, default=KEYS[0], help=f"state key (default: {KEYS[0]})")
    for name, number in (("steps", 256), ("branches", 32), ("size", 8), ("seed", 0)):
        branches.add_argument(f"--{name}", type=int, default=number, help=f"default: {number}")
    for command in (update, branches):
        command.add_argument("--json", type=Path, help="add the rows to this file")
    arguments = parser.parse_args()
    if arguments.command in ("update", "branch"):
        measure = changes_by_updates if arguments.command == "update" else branched_errors
        rows = measure(arguments.pool, arguments)
        print(table_of(rows))
        if arguments.json:
            replace_rows(arguments.json, rows, ("pool", "key") if arguments.command == "branch" else ("pool",))
        return
    if arguments.command == "play":
        named = {name: getattr(arguments, name) for name in ("run", "checkpoint", "split", "first", "tasks")}
        named |= {name: getattr(arguments, name) for name in ("rollouts", "at_once", "seed")}
        make_pool(arguments.pool, PoolSettings(**named, parameters=tuple(arguments.parameters)))
        return
    found = align(arguments.pool, arguments.sizes, arguments.keys, arguments.estimators, arguments.references)
    for size, figures in found.items():
        print(f"{arguments.pool.name}: {size} rollouts of each task\n\n{table(figures)}")
    if arguments.json:
        rows = stored_figures(arguments.pool.name, found)
        replace_rows(arguments.json, rows, ("pool", "rollouts", "estimator", "key"))


def stored_figures(pool: str, found: dict[int, Figures]) -> list[Row]:
    """The figures of a pool as rows: one for each number of rollouts, estimator and key."""
    rows = []
    for size, figures in found.items():
        for name, by_figure in figures.items():
            estimator, key = name.split(" / ")
            values = {
                figure: {other: _rounded(one) for other, one in of.items() if other == "" or "tasks" in figure}
                for figure, of in by_figure.items()
            }
            rows.append({"pool": pool, "rollouts": size, "estimator": estimator, "key": key, "figures": values})
    return rows


def _rounded(one: Interval) -> list[float] | None:
    """Value, low and high; None if they are not finite because the estimate of a squared length is negative."""
    numbers = [one.value, one.low, one.high]
    return [round(number, 3) for number in numbers] if np.isfinite(numbers).all() else None


if __name__ == "__main__":
    main()
