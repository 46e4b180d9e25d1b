"""Measure every estimator on problems whose true policy gradient is known.

    python benchmarks/yardsticks.py               # 9 problems, N = 4, 8, 16, 32, 2,000 batches of 16 tasks each
    python benchmarks/yardsticks.py --enumerate   # N = 4, one task: every outcome with its probability, no sampling
    python benchmarks/yardsticks.py --batches 100000 --trajectories 8 --estimators "pooled leave-one-out"

benchmarks/chain.py describes the problems and `Measures` what is measured. Advantages come from the library; the steps
before the last state are part of each batch. tools/results_pages.py writes the tables of docs/results/chains.md.

Shapes: B batches, M tasks, N trajectories, 4 contexts (one policy logit each), 2 actions.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from chain import (
    CONTEXT_SHARE,
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
COLUMNS = {
    "cosine": "cosine",
    "direction_bias": "direction bias",
    "relative_variance": "relative variance",
    "advantage_bias": "bias of advantages",
    "advantage_variance": "variance of advantages",
    "advantage_error": "squared error of advantages",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """An estimator with options.

    Attributes:
        name: name of the row in tables. estimator, options: arguments of `compute_advantages`; gamma is 1.
        batch_wide: whether a task's advantages depend on the batch's other tasks; batches are then computed one by one.
    """

    name: str
    estimator: str
    options: dict[str, Any] = field(default_factory=dict)
    batch_wide: bool = False


def contenders() -> tuple[Contender, ...]:
    """Every estimator and preset; unless the name says "std" returns are not divided by a standard deviation."""
    plain = {"mode": "mean_norm"}
    own = {**plain, "baseline": "leave_one_out"}
    only_last = {**plain, "length_weight_alpha": float("inf")}
    return (
        Contender("grpo std", "grpo"),
        Contender("dr_grpo", "dr_grpo"),
        Contender("rloo", "rloo"),
        Contender("reinforce", "reinforce", plain, batch_wide=True),
        Contender("gae, values 0", "gae", {"gae_lambda": 1.0}),
        Contender("gigpo", "gigpo", plain),
        Contender("gigpo std", "gigpo"),
        Contender("g2po", "g2po", plain),
        Contender("graphgpo", "graphgpo", plain),
        Contender("level 0", "hgpo", {**plain, "history_length": 0}),
        Contender("level 1", "hgpo", {**only_last, "history_length": 1}),
        Contender("level 2", "hgpo", only_last),
        Contender("paper", "hgpo", plain),
        Contender("paper std", "hgpo"),
        Contender("renormalised", "hgpo", {**plain, "missing": "renormalize"}),
        Contender("verl-agent", "hgpo", {**plain, "preset": "verl-agent"}),
        Contender("verl-agent std", "hgpo", {"preset": "verl-agent"}),
        Contender("verl-agent base_group", "hgpo", {**plain, "preset": "verl-agent", "base_group": True}),
        Contender("level 0 leave-one-out", "hgpo", {**own, "history_length": 0}),
        Contender("level 2 leave-one-out", "hgpo", {**own, "length_weight_alpha": float("inf")}),
        Contender("renormalised leave-one-out", "hgpo", {**own, "missing": "renormalize"}),
        Contender("pooled", "hgpo", {**plain, "weight_type": "pooled"}, batch_wide=True),
        Contender("pooled leave-one-out", "hgpo", {**own, "weight_type": "pooled"}, batch_wide=True),
        Contender("mixed_effects", "mixed_effects", plain, batch_wide=True),
    )


def advantages(contender: Contender, outcomes: Outcomes) -> Floats:
    """Advantages of the steps at s, float64[B, M, N]."""
    batches = parts(outcomes, 1) if contender.batch_wide else parts(outcomes, CHUNK)
    return np.concatenate([_of_part(contender, part) for part in batches])


def _of_part(contender: Contender, part: Outcomes) -> Floats:
    result = compute_advantages(step_batch(part), contender.estimator, gamma=1.0, **contender.options)
    last: Floats = result.values.reshape(*part.context.shape, STEPS)[..., STEPS - 1]
    return last


@dataclass(frozen=True, slots=True)
class Measures:
    """What one estimator achieves on one problem.

    Attributes:
        cosine: mean over batches of the cosine between the batch's gradient and the true one (0 for no gradient).
        cosine_error: standard error of the cosine; 0 when enumerated.
        direction_bias: angle between the mean gradient and the true one, radians.
        direction_error: the angle that sampling alone would give (root mean square); 0 when enumerated.
        relative_variance: E|g - E g|^2 / |E g|^2.
        advantage_bias: root mean square over contexts and actions of E[A | c, a] - oracle.
        advantage_variance: mean over contexts and actions of Var[A | c, a].
        advantage_error: mean squared error = advantage_bias^2 + advantage_variance.

    Example: `measure(problem, outcomes, outcomes.reward - 0.5)` is what a constant baseline achieves.
    """

    cosine: float
    cosine_error: float
    direction_bias: float
    direction_error: float
    relative_variance: float
    advantage_bias: float
    advantage_variance: float
    advantage_error: float


def measure(problem: Problem, outcomes: Outcomes, advantage: Floats, sampled: bool = True) -> Measures:
    """Measure advantages float64[B, M, N] of the steps at s.

    The gradient of a batch is the mean over its steps of A * d log pi(a | c), by the logit of each context.
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
    bias, variance = _advantage_moments(problem, outcomes, advantage)
    return Measures(
        cosine=mean_cosine,
        cosine_error=float(np.sqrt(cosine_variance / count)),
        direction_bias=float(angle),
        direction_error=float(np.sqrt(max(across, 0.0) / count) / np.linalg.norm(mean)),
        relative_variance=float((weight * deviation**2).sum() / (mean @ mean)),
        advantage_bias=float(np.sqrt(bias)),
        advantage_variance=float(variance),
        advantage_error=float(bias + variance),
    )


def _advantage_moments(problem: Problem, outcomes: Outcomes, advantage: Floats) -> tuple[float, float]:
    """Mean over contexts and actions of the squared bias and of the variance."""
    cell = (2 * outcomes.context + outcomes.action).reshape(-1)
    weight = np.broadcast_to(outcomes.weight[:, None, None], advantage.shape).reshape(-1)
    total = np.maximum(np.bincount(cell, weight, minlength=8), 1e-300)
    mean = np.bincount(cell, weight * advantage.reshape(-1), minlength=8) / total
    square = np.bincount(cell, weight * advantage.reshape(-1) ** 2, minlength=8) / total
    share = (CONTEXT_SHARE[:, None] * problem.action_share).reshape(-1)
    bias = mean - problem.advantage.reshape(-1)
    return float((share * bias**2).sum()), float((share * (square - mean**2)).sum())


def measured(
    problem: Problem, outcomes: Outcomes, chosen: Sequence[Contender], sampled: bool
) -> Iterator[dict[str, Any]]:
    """One row for each contender, figures to five places."""
    for contender in chosen:
        found = asdict(measure(problem, outcomes, advantages(contender, outcomes), sampled))
        figures = {name: round(value, 5) for name, value in found.items()}
        yield {"problem": problem.name, "N": outcomes.context.shape[-1], "estimator": contender.name, **figures}


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
    everyone = {contender.name: contender for contender in contenders()}
    parser.add_argument("--problems", nargs="+", default=list(known), choices=list(known), metavar="NAME")
    parser.add_argument("--estimators", nargs="+", default=list(everyone), choices=list(everyone), metavar="NAME")
    parser.add_argument("--trajectories", nargs="+", type=int, default=list(TRAJECTORIES), metavar="N")
    parser.add_argument(
        "--batches", type=int, default=2000, help="batches of 16 tasks per problem and N (default: 2000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the samples (default: 1)")
    parser.add_argument("--enumerate", action="store_true", help="N = 4, one task, all outcomes instead of samples")
    parser.add_argument("-o", "--output", type=Path, help="save the rows as JSON")
    options = parser.parse_args(arguments)

    chosen = [everyone[name] for name in options.estimators]
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
        rows += measured(problem, outcomes, chosen, sampled=not options.enumerate)
        if options.output is not None:
            options.output.write_text(json_document(settings, rows=rows), encoding="utf-8")
    show(rows, console)
    console.print(f"cosine and direction: batches of {tasks} tasks")


if __name__ == "__main__":
    main()
