"""CPU time of HGPO and NestedTD with `match_threshold`, and the share of matches that blocks of a large task find.

    python benchmarks/similar_states.py

Every state occurs once: random texts of household games, and random walks in the plane. Tasks have 400 steps, or one
task has all steps; only the latter is split into blocks of states (`hgpo.estimators.neighbours`). The share of matches
counts states with at most `MOST_MATCHES` matches, which the limit does not shorten. Uses one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy reads it when it is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from hgpo import StepBatch, compute_advantages
from hgpo.estimators.levels import Matching
from hgpo.estimators.neighbours import MOST_MATCHES, similar_states, text_vectors
from hgpo.grouping import group_steps
from timing import timed

STEPS = (1_600, 6_400, 25_600)
LENGTH, TASK = 50, 400
THINGS = (
    "cabinet",
    "drawer",
    "shelf",
    "fridge",
    "apple",
    "mug",
    "knife",
    "plate",
    "bread",
    "egg",
    "towel",
    "soap",
    "lamp",
    "book",
    "cup",
)
OPTIONS = {"texts": {"match_threshold": 0.8}, "plane": {"match_threshold": 0.5, "match_by": "embedding"}}


def make_batch(kind: str, steps: int, tasks: int) -> StepBatch:
    """A batch of trajectories of 50 steps in which no state occurs twice."""
    rng = np.random.default_rng(0)
    place = np.cumsum(rng.normal(size=(steps // LENGTH, LENGTH, 2)), axis=1).reshape(-1, 2)
    return StepBatch.from_columns(
        group=np.arange(steps) // (steps // tasks),
        trajectory=np.arange(steps) // LENGTH,
        step=np.arange(steps) % LENGTH,
        observation=[_text(rng, number) for number in range(steps)] if kind == "texts" else np.arange(steps),
        reward=rng.random(steps),
        action=rng.integers(0, 4, steps),
        embedding=place,
    )


def _text(rng: np.random.Generator, number: int) -> str:
    things = ", ".join(f"a {THINGS[rng.integers(len(THINGS))]} {rng.integers(3)}" for _ in range(rng.integers(3, 12)))
    return f"{number}. You arrive at {THINGS[rng.integers(len(THINGS))]} {rng.integers(4)}. On it you see {things}"


def share_found(steps: int, threshold: float) -> float:
    """Share of the matching pairs of texts of one task that `similar_states` finds."""
    batch = make_batch("texts", steps, 1)
    groups = group_steps(batch, history_length=0)
    matches = similar_states(batch, groups, Matching(threshold))
    found_SS = np.zeros((matches.count, matches.count), dtype=bool)
    found_SS[matches.source_E, matches.target_E] = True
    texts = batch.labels["observation"]
    vector_SD = text_vectors([str(texts[code]) for code in batch.observation[groups.row_N]])
    near_SS = vector_SD @ vector_SD.T >= threshold
    np.fill_diagonal(near_SS, False)
    counted_S = near_SS.sum(axis=1) <= MOST_MATCHES
    return float(found_SS[counted_S][near_SS[counted_S]].mean())


def main() -> None:
    """Measure and print both tables."""
    table = Table("estimator", "states", "tasks of", *(f"{steps:,} steps" for steps in STEPS), title="CPU seconds")
    for estimator in ("hgpo", "nested_td"):
        for kind, options in OPTIONS.items():
            own = {"action_power": 0.0} if estimator == "nested_td" else {}
            for name, tasks_of in ((f"{TASK} steps", lambda steps: steps // TASK), ("all steps", lambda steps: 1)):
                run = partial(compute_advantages, estimator=estimator, **options, **own)
                took = [timed(run, partial(make_batch, kind, steps, tasks_of(steps)), 3)[0].minimum for steps in STEPS]
                table.add_row(estimator, kind, name, *(f"{seconds:.3f}" for seconds in took))
    Console().print(table)
    for threshold in (0.95, 0.9, 0.85):
        print(f"one task of 6,400 texts, threshold {threshold}: {100 * share_found(6_400, threshold):.0f} % found")


if __name__ == "__main__":
    main()
