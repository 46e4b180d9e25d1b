"""What each state key merges and separates, on the rollouts of a pool (benchmarks/gradients.py).

    python benchmarks/state_keys.py POOL [--rollouts 8]

The pool's actions are played again, and every key is computed for every state; `simulator` is the exact state. A key
merges different exact states if it has one value for them, and separates an exact state if it has two values for it.
A key is useful to an estimator as far as the other rollouts in a state predict the return from there.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hgpo.columns import FloatArray, IntArray
from hgpo.returns import discounted_returns
from hgpo.rollout.records import StepRecord, to_step_batch
from hgpo.steps import StepBatch
from true_gradient.contenders import GAMMA
from true_gradient.pools import open_player, read_pool, read_settings
from true_gradient.replay import KEYS

EXACT = "simulator"


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Figures of one key over the tasks of a pool.

    Attributes:
        states: number of different values in a task, mean over tasks.
        trajectories: number of trajectories in the state of a step, mean over steps.
        alone: share of the steps in whose state no other trajectory was.
        merged: share of the pairs of steps of a task with equal values whose exact states differ.
        separated: share of the pairs of steps of a task with equal exact states whose values differ.
        predicted: share of the returns' variance within tasks that the mean of the state's other trajectories predicts;
            below 0 if it predicts worse than the mean of the task's other trajectories.
        commonest: the most frequent value, and its share of the steps.
    """

    states: float
    trajectories: float
    alone: float
    merged: float
    separated: float
    predicted: float
    commonest: tuple[str, float]


def key_figures(records: Mapping[str, Sequence[StepRecord]], exact: str = EXACT) -> dict[str, KeyFigures]:
    """The figures of every key.

    Args:
        records: key -> the steps with this key's values, in the same order for all keys; trajectories are complete.
        exact: the key of the exact states.
    """
    batches = {key: to_step_batch(keyed) for key, keyed in records.items()}
    steps = batches[exact]
    exact_N = _states(steps)
    return_N = discounted_returns(steps, GAMMA)
    task_N, trajectory_N = steps.group, steps.trajectory
    of_task_N, _ = mean_of_others(return_N, task_N, trajectory_N)
    found = {}
    for key, keyed in records.items():
        state_N = _states(batches[key])
        both = _pairs(np.unique(np.stack([state_N, exact_N]), axis=1, return_inverse=True)[1].reshape(-1))
        of_state_N, others_N = mean_of_others(return_N, state_N, trajectory_N)
        of_state_N = np.where(others_N > 0, of_state_N, of_task_N)
        [(text, count)] = Counter(step.observation for step in keyed).most_common(1)
        found[key] = KeyFigures(
            states=(state_N.max() + 1) / (task_N.max() + 1),
            trajectories=float(np.mean(others_N + 1)),
            alone=float(np.mean(others_N == 0)),
            merged=1 - both / max(1, _pairs(state_N)),
            separated=1 - both / max(1, _pairs(exact_N)),
            predicted=float(1 - np.sum((return_N - of_state_N) ** 2) / np.sum((return_N - of_task_N) ** 2)),
            commonest=(text, count / len(steps)),
        )
    return found


def _states(batch: StepBatch) -> IntArray:
    """The number of each step's (task, value of the key)."""
    pair_N = batch.group * (int(batch.observation.max()) + 1) + batch.observation
    return np.unique(pair_N, return_inverse=True)[1].reshape(-1)


def _pairs(number_N: IntArray) -> int:
    """How many pairs of steps have the same number."""
    count = np.bincount(number_N)
    return int(np.sum(count * (count - 1) // 2))


def mean_of_others(value_N: FloatArray, group_N: IntArray, trajectory_N: IntArray) -> tuple[FloatArray, IntArray]:
    """For each step: mean over the steps of its group's other trajectories (0 if none), and number of the latter."""
    pair_N = np.unique(np.stack([group_N, trajectory_N]), axis=1, return_inverse=True)[1].reshape(-1)
    sum_G, count_G = np.bincount(group_N, weights=value_N), np.bincount(group_N)
    sum_P, count_P = np.bincount(pair_N, weights=value_N), np.bincount(pair_N)
    group_P = np.zeros(len(count_P), dtype=np.int64)
    group_P[pair_N] = group_N
    others_N = np.bincount(group_P)[group_N] - 1
    rest_N = count_G[group_N] - count_P[pair_N]
    return (sum_G[group_N] - sum_P[pair_N]) / np.maximum(rest_N, 1), others_N


def show(found: Mapping[str, KeyFigures], title: str, console: Console) -> None:
    heads = (
        "states per task",
        "trajectories per state",
        "alone",
        "merged",
        "separated",
        "predicted",
        "commonest value",
    )
    table = Table("key", *heads, title=title)
    for key, one in found.items():
        text, share = one.commonest
        shares = [f"{value:.2f}" for value in (one.alone, one.merged, one.separated, one.predicted)]
        shown = f"{share:.0%} {' '.join(text.split())[:40]!r}"
        table.add_row(key, f"{one.states:.0f}", f"{one.trajectories:.1f}", *shares, shown)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", type=Path)
    parser.add_argument("--rollouts", type=int, default=8, help="of each task that are used (default: 8)")
    arguments = parser.parse_args()
    settings = read_settings(arguments.pool)
    records: dict[str, list[StepRecord]] = {key: [] for key in KEYS}
    parts = read_pool(arguments.pool, open_player(settings), KEYS)
    for part in track(parts, arguments.pool.name, total=-(-settings.tasks // settings.at_once)):
        for key in KEYS:
            records[key] += [
                step for step in part.steps.records(key) if int(step.trajectory.rpartition("#")[2]) < arguments.rollouts
            ]
    title = f"{arguments.pool.name}: {settings.tasks} tasks, {arguments.rollouts} rollouts of each"
    show(key_figures(records), title, Console())


if __name__ == "__main__":
    main()
