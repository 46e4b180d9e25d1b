"""Speed of computing advantages, compared with the published way.

    python benchmarks/estimators.py                     # 6,400 steps (the paper's batch) and 64,000: two minutes
    python benchmarks/estimators.py --quick             # 6,400 steps alone: seconds
    python benchmarks/estimators.py --check             # exit status 1 if a ratio is far below that in baseline.json
    python benchmarks/estimators.py --update-baseline   # record this machine's ratios

A batch is 16 tasks × 8 trajectories × 50 steps, or a multiple of it, with a text of about 290 characters per step
(`step_batches.py`). "From texts" is `StepBatch.from_columns` and `compute_advantages` on Python lists with new texts
for each call, "interned" is `compute_advantages` alone. The published way (`published.py`, HGPO) is measured in the
same run and its advantages must equal the library's.

Times are CPU seconds of one process with one thread, which equal wall time on an idle machine and exclude waiting on a
busy one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # read when numpy and torch are loaded

import numpy as np

from hgpo import StepBatch, compute_advantages
from hgpo.estimators import Advantages
from step_batches import STEPS, TRAJECTORIES, RawBatch
from stored_rows import markdown_table

BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 0.5
"""Share of a recorded ratio that may be lost before `--check` fails: on a busy machine ratios vary by a third."""

HISTORY_LENGTH = 4
ESTIMATORS: dict[str, dict[str, Any]] = {
    "hgpo paper": {"estimator": "hgpo", "preset": "paper", "history_length": HISTORY_LENGTH},
    "hgpo verl-agent": {"estimator": "hgpo", "preset": "verl-agent", "history_length": HISTORY_LENGTH},
    "gigpo": {"estimator": "gigpo"},
    "grpo": {"estimator": "grpo"},
}
PAPER, TENFOLD = 6_400, 64_000
REPEATS = {PAPER: 100, TENFOLD: 20}
PUBLISHED_REPEATS = {PAPER: 5, TENFOLD: 1}
LARGEST_DIFFERENCE = 1e-9
"""Largest allowed difference of float64 results summed in another order; advantages are at most about 10."""

SMALLEST_LEVEL_ADVANTAGE = 1e-6
"""A level is weighted if its advantage is not 0, so smaller ones are rejected: rounding might decide if they are 0."""


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds of repeated calls."""

    minimum: float
    median: float


def timed(function: Callable[[Any], Any], make_input: Callable[[], Any], repeats: int) -> tuple[Timing, Any]:
    """Time calls of `function` with a new `make_input()` each, which is not timed; return timing and last result.

    The garbage collector is off during calls. CPU time is that of the whole process, so use one thread.
    """
    seconds: list[float] = []
    result = None
    for _ in range(repeats):
        given = result = None  # frees what the last call left
        given = make_input()
        gc.collect()
        gc.disable()
        start = time.process_time()
        result = function(given)
        seconds.append(time.process_time() - start)
        gc.enable()
    return Timing(min(seconds), median(seconds)), result


@dataclass(frozen=True, slots=True)
class Measurement:
    """One estimator at one size, on an interned batch and from texts."""

    steps: int
    estimator: str
    interned: Timing
    texts: Timing


class Published(NamedTuple):
    """CPU seconds of the published way: returns and groups."""

    returns: float
    groups: float


def measure(raw: RawBatch, repeats: int) -> list[Measurement]:
    """Every estimator on one batch."""
    results = []
    for name, options in ESTIMATORS.items():
        batch = StepBatch.from_columns(**raw.columns())
        texts, _ = timed(partial(compute_from_texts, options=options), raw.columns, repeats)
        interned, _ = timed(partial(compute_advantages, **options), lambda batch=batch: batch, repeats)
        results.append(Measurement(len(raw), name, interned, texts))
    return results


def compute_from_texts(columns: dict[str, Any], options: dict[str, Any]) -> Advantages:
    """Compute advantages from lists of Python values."""
    return compute_advantages(StepBatch.from_columns(**columns), **options)


def measure_published(raw: RawBatch, repeats: int) -> Published:
    """The published way on one batch.

    Raises:
        ValueError: its advantages differ from the library's.
    """
    import published  # needs torch, which the library's side does without

    columns = raw.columns()
    group, trajectory, text = (published.objects(columns[name]) for name in ("group", "trajectory", "observation"))
    reward = np.array(raw.reward)
    returns, return_N = timed(lambda _: published.step_returns(reward, trajectory, gamma=0.95), lambda: None, repeats)
    groups, advantage_N = timed(
        lambda _: published.step_advantages(return_N, text, group, trajectory, HISTORY_LENGTH), lambda: None, repeats
    )
    check_equal(raw, advantage_N)
    return Published(returns.minimum, groups.minimum)


def check_equal(raw: RawBatch, published_N: np.ndarray) -> float:
    """Largest difference between the published advantages, float64[N], and the library's preset "verl-agent".

    Raises:
        ValueError: the difference is above `LARGEST_DIFFERENCE`, or rounding would decide the comparison.
    """
    advantages = compute_advantages(StepBatch.from_columns(**raw.columns()), **ESTIMATORS["hgpo verl-agent"])
    for level in advantages.levels:
        size_N = np.abs(level.advantage)
        if ((size_N > 0) & (size_N < SMALLEST_LEVEL_ADVANTAGE)).any():
            raise ValueError(f"level {level.k} has advantages below {SMALLEST_LEVEL_ADVANTAGE}; choose another seed")
    difference = float(np.abs(advantages.values - published_N).max())
    if not difference <= LARGEST_DIFFERENCE:
        raise ValueError(f"published and library advantages differ by {difference}, more than {LARGEST_DIFFERENCE}")
    return difference


def ratios(measurements: list[Measurement], published: dict[int, Published]) -> dict[str, float]:
    """How many times faster than the published HGPO, by "steps/estimator/input"."""
    return {
        f"{m.steps}/{m.estimator}/{kind}": sum(published[m.steps]) / timing.minimum
        for m in measurements
        for kind, timing in (("interned", m.interned), ("texts", m.texts))
    }


def fallen(measured: dict[str, float], baseline: dict[str, float]) -> list[str]:
    """A line of text for each ratio that is more than `TOLERANCE` below the recorded ratio."""
    return [
        f"{name}: {measured[name]:,.0f}× the speed of the published way, recorded were {recorded:,.0f}×"
        for name, recorded in baseline.items()
        if name in measured and measured[name] < recorded * (1 - TOLERANCE)
    ]


def table(measurements: list[Measurement], published: dict[int, Published]) -> str:
    """A row for each size and estimator; only HGPO is compared with the published way, which computes HGPO."""
    lines = []
    for m in measurements:
        both, seconds = (m.interned, m.texts), sum(published[m.steps])
        times = [f"{1e3 * timing.minimum:,.2f} ({1e3 * timing.median:,.2f})" for timing in both]
        compared = [f"{seconds:,.2f} s", *(f"{seconds / timing.minimum:,.0f}×" for timing in both)]
        lines.append([f"{m.steps:,}", m.estimator, *times, *(compared if "hgpo" in m.estimator else [""] * 3)])
    heads = ["steps", "estimator", "interned, ms", "from texts, ms", "published", "interned", "from texts"]
    return markdown_table(heads, lines)


def main() -> int:
    """Measure, show, and compare with what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{PAPER:,} steps alone")
    parser.add_argument("--check", action="store_true", help="fail if a ratio fell or a published result differs")
    parser.add_argument("--update-baseline", action="store_true", help=f"write the ratios to {BASELINE.name}")
    arguments = parser.parse_args()
    sizes = (PAPER,) if arguments.quick else (PAPER, TENFOLD)
    batches = {steps: RawBatch.make(steps // (TRAJECTORIES * STEPS)) for steps in sizes}
    measurements = [m for steps, raw in batches.items() for m in measure(raw, REPEATS[steps])]
    published = {steps: measure_published(raw, PUBLISHED_REPEATS[steps]) for steps, raw in batches.items()}
    print(f"{table(measurements, published)}\nLeast CPU time (median in brackets); ratios of the least.")
    for steps, reference in published.items():
        print(f"published, {steps:,}: returns {reference.returns:.2f} s, groups {reference.groups:.2f} s")

    measured = ratios(measurements, published)
    if arguments.update_baseline:
        rounded = {name: float(f"{ratio:.3g}") for name, ratio in measured.items()}
        BASELINE.write_text(json.dumps(rounded, indent=2) + "\n")
    if arguments.check:
        problems = fallen(measured, json.loads(BASELINE.read_text()))
        for problem in problems:
            print(f"slower than recorded: {problem}")
        return 1 if problems else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
