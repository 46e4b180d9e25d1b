"""Measure every estimator on problems whose true policy gradient is known.

    python benchmarks/yardsticks.py               # 9 problems, N = 4, 8, 16, 32, 2,000 batches of 16 tasks each
    python benchmarks/yardsticks.py --enumerate   # N = 4, one task: every outcome with its probability, no sampling
    python benchmarks/yardsticks.py --batches 100000 --trajectories 8 --estimators "pooled leave-one-out"

benchmarks/chain.py describes the problems and `measure` what is measured. Advantages come from the library; the steps
before the last state are part of each batch. tools/results_pages.py writes the tables of docs/results/chains.md.

Shapes: B batches, M tasks, N trajectories, 4 contexts (one policy logit each), 2 actions.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from chain import (
    PROBLEMS,
    STEPS,
    STRESS,
    Floats,
    Outcomes,
    Problem,
    enumerate_task,
    parts,
    sample,
    step_batch,
)
from hgpo import compute_advantages
from stored_rows import json_document, markdown_table

TRAJECTORIES = (4, 8, 16, 32)
TASKS = 16
CHUNK = 100
COLUMNS = {"cosine": "cosine", "direction_bias": "direction bias"}

_PLAIN = {"mode": "mean_norm"}
_LEAVE_ONE_OUT = {**_PLAIN, "baseline": "leave_one_out"}
_ONLY_LAST = {**_PLAIN, "length_weight_alpha": float("inf")}
CONTENDERS: dict[str, dict[str, Any]] = {
    "grpo std": {"estimator": "grpo"},
    "dr_grpo": {"estimator": "dr_grpo"},
    "rloo": {"estimator": "rloo"},
    "reinforce": {"estimator": "reinforce", **_PLAIN},
    "gae, values 0": {"estimator": "gae", "gae_lambda": 1.0},
    "gigpo": {"estimator": "gigpo", **_PLAIN},
    "gigpo std": {"estimator": "gigpo"},
    "g2po": {"estimator": "g2po", **_PLAIN},
    "graphgpo": {"estimator": "graphgpo", **_PLAIN},
    "level 0": {"estimator": "hgpo", **_PLAIN, "history_length": 0},
    "level 1": {"estimator": "hgpo", **_ONLY_LAST, "history_length": 1},
    "level 2": {"estimator": "hgpo", **_ONLY_LAST},
    "paper": {"estimator": "hgpo", **_PLAIN},
    "paper std": {"estimator": "hgpo"},
    "renormalised": {"estimator": "hgpo", **_PLAIN, "missing": "renormalize"},
    "verl-agent": {"estimator": "hgpo", **_PLAIN, "preset": "verl-agent"},
    "verl-agent std": {"estimator": "hgpo", "preset": "verl-agent"},
    "verl-agent base_group": {"estimator": "hgpo", **_PLAIN, "preset": "verl-agent", "base_group": True},
    "level 0 leave-one-out": {"estimator": "hgpo", **_LEAVE_ONE_OUT, "history_length": 0},
    "level 2 leave-one-out": {"estimator": "hgpo", **_LEAVE_ONE_OUT, "length_weight_alpha": float("inf")},
    "renormalised leave-one-out": {"estimator": "hgpo", **_LEAVE_ONE_OUT, "missing": "renormalize"},
    "pooled": {"estimator": "hgpo", **_PLAIN, "weight_type": "pooled"},
    "pooled leave-one-out": {"estimator": "hgpo", **_LEAVE_ONE_OUT, "weight_type": "pooled"},
    "mixed_effects": {"estimator": "mixed_effects", **_PLAIN},
}
"""Every estimator and preset: name of the row -> keywords of `compute_advantages`, with gamma 1.

Unless the name says "std", returns are not divided by a standard deviation.
"""
BATCH_WIDE = ("reinforce", "pooled", "pooled leave-one-out", "mixed_effects")
"""Contenders whose advantages depend on the batch's other tasks; their batches are computed one by one."""


def advantages(contender: str, outcomes: Outcomes) -> Floats:
    """Advantages of the steps at s, float64[B, M, N]."""
    chosen = parts(outcomes, 1 if contender in BATCH_WIDE else CHUNK)
    found = [compute_advantages(step_batch(part), gamma=1.0, **CONTENDERS[contender]).values for part in chosen]
    last: Floats = np.concatenate(found).reshape(*outcomes.context.shape, STEPS)[..., STEPS - 1]
    return last


def measure(problem: Problem, outcomes: Outcomes, advantage: Floats, sampled: bool = True) -> dict[str, float]:
    """Measure advantages float64[B, M, N] of the steps at s; those of a constant baseline are `outcomes.reward - 0.5`.

    The gradient of a batch is the mean over its steps of A * d log pi(a | c), by the logit of each context.

    Returns:
        "cosine": mean over batches of the cosine between the batch's gradient and the true one (0 for no gradient).
        "cosine_error": standard error of the cosine; 0 when enumerated.
        "direction_bias": angle between the mean gradient and the true one, radians.
        "direction_error": the angle that sampling alone would give (root mean square); 0 when enumerated.
    """
    true = problem.gradient
    score = advantage * (outcomes.action - np.array(problem.policy)[outcomes.context])
    gradient = np.stack([np.where(outcomes.context == c, score, 0.0).mean(axis=(1, 2)) for c in range(4)], axis=1)
    weight = outcomes.weight[:, None]
    count = len(outcomes) if sampled else np.inf

    length = np.linalg.norm(gradient, axis=1)
    some = length > 1e-12
    cosine = np.where(some, gradient @ true / np.where(some, length, 1.0), 0.0) / np.linalg.norm(true)
    mean_cosine = float((outcomes.weight * cosine).sum())
    cosine_variance = float((outcomes.weight * (cosine - mean_cosine) ** 2).sum())

    mean = (weight * gradient).sum(axis=0)
    deviation = gradient - mean
    along = mean / np.linalg.norm(mean)
    across = (weight * (deviation**2)).sum() - (outcomes.weight * (deviation @ along) ** 2).sum()
    angle = np.arctan2(np.linalg.norm(mean - (mean @ true) * true / (true @ true)), mean @ true / np.linalg.norm(true))
    return {
        "cosine": mean_cosine,
        "cosine_error": float(np.sqrt(cosine_variance / count)),
        "direction_bias": float(angle),
        "direction_error": float(np.sqrt(max(across, 0.0) / count) / np.linalg.norm(mean)),
    }


def measured(problem: Problem, outcomes: Outcomes, chosen: Sequence[str], sampled: bool) -> Iterator[dict[str, Any]]:
    """One row for each contender, figures to five places."""
    for contender in chosen:
        found = measure(problem, outcomes, advantages(contender, outcomes), sampled)
        figures = {name: round(value, 5) for name, value in found.items()}
        yield {"problem": problem.name, "N": outcomes.context.shape[-1], "estimator": contender, **figures}


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """One table for each measure and N."""
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    for measure, count in itertools.product(COLUMNS, dict.fromkeys(row["N"] for row in rows)):
        title = f"{COLUMNS[measure]}, N = {count}"
        console.print(f"{title}\n\n{table(rows, measure, count, names)}", markup=False, soft_wrap=True)


def table(rows: list[dict[str, Any]], measure: str, count: int, names: list[str]) -> str:
    """One row for each estimator, one column for each problem; the best cosine of a column in bold."""
    found = {(row["estimator"], row["problem"]): row[measure] for row in rows if row["N"] == count}
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    lines = []
    for name in names:
        cells = [f"{found[name, problem]:.3f}" for problem in problems]
        if measure == "cosine":
            best = [f"{max(found[other, problem] for other in names):.3f}" for problem in problems]
            cells = [f"**{cell}**" if cell == top else cell for cell, top in zip(cells, best, strict=True)]
        lines.append([name, *cells])
    return markdown_table(["estimator", *problems], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {problem.name: problem for problem in (*PROBLEMS, *STRESS)}
    parser.add_argument("--problems", nargs="+", default=list(known), choices=list(known), metavar="NAME")
    parser.add_argument("--estimators", nargs="+", default=list(CONTENDERS), choices=CONTENDERS, metavar="NAME")
    parser.add_argument("--trajectories", nargs="+", type=int, default=list(TRAJECTORIES), metavar="N")
    parser.add_argument(
        "--batches", type=int, default=2000, help="batches of 16 tasks per problem and N (default: 2000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the samples (default: 1)")
    parser.add_argument("--enumerate", action="store_true", help="N = 4, one task, all outcomes instead of samples")
    parser.add_argument("-o", "--output", type=Path, help="save the rows as JSON")
    options = parser.parse_args(arguments)

    tasks, batches, seed = (1, None, None) if options.enumerate else (TASKS, options.batches, options.seed)
    settings = {"tasks": tasks, "batches": batches, "seed": seed}
    console, rows = Console(width=110), list[dict[str, Any]]()
    counts = [4] if options.enumerate else options.trajectories
    for name, count in track(list(itertools.product(options.problems, counts)), "measuring", console=console):
        problem = known[name]
        if options.enumerate:
            outcomes = enumerate_task(problem, count)
        else:
            number = np.random.default_rng((options.seed, list(known).index(name), count))
            outcomes = sample(problem, options.batches, TASKS, count, number)
        rows += measured(problem, outcomes, options.estimators, sampled=not options.enumerate)
        if options.output is not None:
            options.output.write_text(json_document(settings, rows=rows), encoding="utf-8")
    show(rows, console)
    console.print(f"cosine and direction: batches of {tasks} tasks")


if __name__ == "__main__":
    main()
