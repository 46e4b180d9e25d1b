"""What groups of stored steps say of the outcome, by state key and level.

    python benchmarks/stored_states.py gpt-4o-airline.json [--state observation --state json …] [--column NAME=KEY …]

The file is read as by `hgpo advantages`; the default columns are those of tau-bench's published trajectories. An
outcome is the sum of a trajectory's rewards. For each step it is predicted by the mean outcome of the other
trajectories of the step's group, each once, or by that of the task's other trajectories where the group has none.

    matched    share of the steps whose group has another trajectory
    usable     share of the steps for which HGPO uses the level; other steps of the same trajectory suffice
    raw        1 - squared error of the prediction / squared error of the mean of the task's other trajectories
    adjusted   raw less its mean under all exchanges of outcomes within tasks: small groups cost raw, and not adjusted
    matched, adjusted   the same of matched steps alone
    p          share of exchanges whose raw is at least as high

Intervals (95 %) resample tasks. Shapes: J tasks, M trajectories and G groups of one task, P permutations.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hgpo.columns import FloatArray, IntArray
from hgpo.grouping import Runs, group_steps
from hgpo.returns import total_rewards
from hgpo.rollout.keyed_steps import keyed_steps
from hgpo.steps import StepBatch
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import parse_columns, read_batch

COLUMNS = ["group=task_id", "trajectory=trial", "messages=traj"]
STATES = ["observation", "json", "tool_call"]
LEVELS, DRAWS, MOST_PERMUTATIONS = 3, 10_000, 200


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One level of one key.

    Attributes:
        matched, usable: shares of the steps.
        removed_J, chance_J: squared error that the groups remove in each task, and its mean over permutations.
        error_J, matched_error_J: squared error of the mean of the task's others, over all and over matched steps.
        p: of the sum of `removed_J` under permutations.
    """

    matched: float
    usable: float
    removed_J: FloatArray
    chance_J: FloatArray
    error_J: FloatArray
    matched_error_J: FloatArray
    p: float


def removed_error(outcome_PM: FloatArray, steps_GM: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Squared error that the groups of one task remove, and that of the task's others over all and matched steps, [P].

    Example: outcomes 0, 0, 1, 1 and two groups of the equal ones: the task's others are off by 2/3, the groups by 0.

    >>> removed_error(np.array([[0.0, 0, 1, 1]]), np.array([[1, 1, 0, 0], [0, 0, 1, 1]]))[0].round(3)
    array([1.778])
    """
    present_GM = (steps_GM > 0).astype(np.float64)
    others_GM = present_GM.sum(axis=1, keepdims=True) - present_GM
    matched_GM = steps_GM * (others_GM > 0)
    sum_PG = outcome_PM @ present_GM.T
    mean_PGM = (sum_PG[:, :, None] - outcome_PM[:, None, :]) / np.maximum(others_GM, 1.0)
    task_PM = (outcome_PM.sum(axis=1, keepdims=True) - outcome_PM) / max(1, outcome_PM.shape[1] - 1)
    error_PM = (outcome_PM - task_PM) ** 2
    removed_PGM = error_PM[:, None, :] - (outcome_PM[:, None, :] - mean_PGM) ** 2
    return (
        np.einsum("pgm,gm->p", removed_PGM, matched_GM),
        np.einsum("pm,gm->p", error_PM, steps_GM),
        np.einsum("pm,gm->p", error_PM, matched_GM),
    )


def level_figures(batch: StepBatch, group_N: IntArray, rng: np.random.Generator) -> LevelFigures:
    """The figures of one partition of the steps into groups."""
    outcome_M, tasks = total_rewards(batch), int(batch.group.max()) + 1
    removed_J, chance_J, error_J, matched_J = np.zeros((4, tasks))
    drawn_D, matched = np.zeros(DRAWS), 0
    for task in range(tasks):
        own_N = batch.group == task
        _, group_S = np.unique(group_N[own_N], return_inverse=True)
        numbers, trajectory_S = np.unique(batch.trajectory[own_N], return_inverse=True)
        steps_GM = np.zeros((group_S.max() + 1, len(numbers)), dtype=np.int64)
        np.add.at(steps_GM, (group_S, trajectory_S), 1)
        matched += int(steps_GM[(steps_GM > 0).sum(axis=1) > 1].sum())
        outcome = outcome_M[numbers]
        few = len(numbers) <= 5
        exchanged = permutations(outcome) if few else (rng.permutation(outcome) for _ in range(MOST_PERMUTATIONS))
        removed_P = removed_error(np.array([outcome, *exchanged]), steps_GM)
        removed_J[task], error_J[task], matched_J[task] = (part_P[0] for part_P in removed_P)
        chance_J[task] = removed_P[0][1:].mean()
        drawn_D += rng.choice(removed_P[0][1:], DRAWS)
    usable = float(np.mean(np.bincount(group_N)[group_N] > 1))
    p = (1 + np.count_nonzero(drawn_D >= removed_J.sum() - 1e-9)) / (1 + DRAWS)
    return LevelFigures(matched / len(batch), usable, removed_J, chance_J, error_J, matched_J, p)


def with_interval(part_J: FloatArray, whole_J: FloatArray, task_DJ: IntArray) -> str:
    drawn_D = part_J[task_DJ].sum(axis=1) / np.maximum(whole_J[task_DJ].sum(axis=1), 1e-12)
    low, high = np.percentile(drawn_D, [2.5, 97.5])
    return f"{part_J.sum() / max(whole_J.sum(), 1e-12):+.3f} [{low:+.3f}, {high:+.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--state", action="append", help=f"default: {', '.join(STATES)}")
    parser.add_argument("--column", action="append", help=f"default: {' '.join(COLUMNS)}")
    arguments = parser.parse_args()
    columns, rng = parse_columns(arguments.column or COLUMNS), np.random.default_rng(0)
    batch = read_batch(find_step_files(arguments.file, columns=columns)[0], columns).batch
    tasks = int(batch.group.max()) + 1
    task_DJ = rng.integers(0, tasks, (DRAWS, tasks))
    heads = ("level", "usable", "matched", "raw", "adjusted", "matched, adjusted", "p", "adjusted, less the first key")
    table = Table("key", *heads, title=f"{len(batch):,} steps, {tasks} tasks")
    first: list[FloatArray] = []
    for state in arguments.state or STATES:
        keyed, _ = keyed_steps(batch, state)
        groups = group_steps(keyed, LEVELS - 1)
        for level, starts_N in enumerate(groups.starts):
            group_N = np.zeros(len(batch), dtype=np.int64)
            group_N[groups.row_N] = Runs.from_starts(starts_N).run_N
            found = level_figures(keyed, group_N, rng)
            excess_J, error_J = found.removed_J - found.chance_J, found.error_J
            first += [excess_J] if len(first) < LEVELS else []
            shown = [with_interval(excess_J, whole_J, task_DJ) for whole_J in (error_J, found.matched_error_J)]
            beyond = with_interval(excess_J - first[level], error_J, task_DJ)
            shares = [f"{100 * share:.1f} %" for share in (found.usable, found.matched)]
            raw = f"{found.removed_J.sum() / error_J.sum():+.3f}"
            table.add_row(state, str(level), *shares, raw, *shown, f"{found.p:.3f}", beyond)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
