"""Speed of computing advantages, compared with the published way.

    python benchmarks/estimators.py                     # 6,400 steps (the paper's batch) and 64,000: two minutes
    python benchmarks/estimators.py --quick             # 6,400 steps alone: seconds
    python benchmarks/estimators.py --large             # also 640,000 and 10,000,000 steps: minutes, 10 GB of memory
    python benchmarks/estimators.py --check             # exit status 1 if a ratio is far below that in baseline.json
    python benchmarks/estimators.py --update-baseline   # record this machine's ratios

A batch is 16 tasks × 8 trajectories × 50 steps, or a multiple of it, with a text of about 290 characters per step
(`step_batches.py`). "From texts" is `StepBatch.from_columns` and `compute_advantages` on Python lists with new texts
for each call, "interned" is `compute_advantages` alone. The published way (`published.py`, HGPO) is measured in the
same run and its advantages must equal the library's; above 64,000 steps it is extrapolated, returns with the square of
the number of steps, groups in proportion.

Times are CPU seconds of one process with one thread, which equal wall time on an idle machine and exclude waiting on a
busy one. Memory is the highest resident size during a call minus the resident size before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # read when numpy and torch are loaded

import numpy as np
from rich.console import Console
from rich.table import Table

from hgpo import StepBatch, compute_advantages
from hgpo.estimators import Advantages, get, parse_options
from step_batches import STEPS, TRAJECTORIES, RawBatch
from timing import Timing, timed

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
PAPER, TENFOLD, LARGE, HUGE = 6_400, 64_000, 640_000, 10_000_000
REPEATS = {PAPER: 100, TENFOLD: 20, LARGE: 5, HUGE: 2}
PUBLISHED_REPEATS = {PAPER: 5, TENFOLD: 1}
LARGEST_DIFFERENCE = 1e-9
"""Largest allowed difference of float64 results summed in another order; advantages are at most about 10."""

SMALLEST_LEVEL_ADVANTAGE = 1e-6
"""A level is weighted if its advantage is not 0, so smaller ones are rejected: rounding might decide if they are 0."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One estimator at one size, on an interned batch and from texts."""

    steps: int
    estimator: str
    interned: Timing
    texts: Timing


@dataclass(frozen=True, slots=True)
class Published:
    """CPU seconds of the published way: returns and groups. `extrapolated` says they were not measured at this size."""

    steps: int
    returns: float
    groups: float
    extrapolated: bool = False

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.returns + self.groups

    def at(self, steps: int) -> Published:
        """Extrapolate to another size: returns are quadratic in the number of steps, groups linear."""
        factor = steps / self.steps
        return Published(steps, self.returns * factor**2, self.groups * factor, extrapolated=True)


def measure(raw: RawBatch, repeats: int) -> list[Measurement]:
    """Every estimator on one batch."""
    results = []
    for name, options in ESTIMATORS.items():
        columns = partial(raw.columns, actions=needs_actions(**options))
        batch = StepBatch.from_columns(**columns())
        texts, _ = timed(partial(compute_from_texts, options=options), columns, repeats)
        interned, _ = timed(partial(compute_advantages, **options), lambda batch=batch: batch, repeats)
        results.append(Measurement(len(raw), name, interned, texts))
    return results


def needs_actions(estimator: str, **options: Any) -> bool:
    """Whether the estimator needs the column `action`."""
    return "action" in get(estimator).needs(parse_options(estimator, **options))


def compute_from_texts(columns: dict[str, Any], options: dict[str, Any]) -> Advantages:
    """Compute advantages from lists of Python values."""
    return compute_advantages(StepBatch.from_columns(**columns), **options)


def measure_apart(steps: int) -> list[Measurement]:
    """`measure` in a separate process, so that earlier allocations do not affect its memory."""
    command = [sys.executable, __file__, "--measure", str(steps)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [
        Measurement(row["steps"], row["estimator"], Timing(**row["interned"]), Timing(**row["texts"]))
        for row in json.loads(output)
    ]


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
    return Published(len(raw), returns.minimum, groups.minimum)


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


def batch_of(steps: int) -> RawBatch:
    """The paper's batch, or a multiple of it, of that many steps."""
    return RawBatch.make(steps // (TRAJECTORIES * STEPS))


def ratios(measurements: list[Measurement], published: dict[int, Published]) -> dict[str, float]:
    """How many times faster than the published HGPO, by "steps/estimator/input"."""
    return {
        f"{m.steps}/{m.estimator}/{kind}": published[m.steps].seconds / timing.minimum
        for m in measurements
        for kind, timing in (("interned", m.interned), ("texts", m.texts))
    }


def targets(measurements: list[Measurement], published: dict[int, Published]) -> list[tuple[str, str, bool]]:
    """(target, measured value, whether it is met); the slower of the two HGPO presets counts."""
    hgpo = {steps: [m for m in measurements if m.steps == steps and "hgpo" in m.estimator] for steps in published}
    texts = {steps: max(m.texts.minimum for m in both) for steps, both in hgpo.items()}
    interned = {steps: max(m.interned.minimum for m in both) for steps, both in hgpo.items()}
    rows = []
    for steps, wanted in ((PAPER, 150), (TENFOLD, 600)):
        if steps in texts:
            ratio = published[steps].seconds / texts[steps]
            rows.append((f"{steps:,} from texts: {wanted}× faster than published", f"{ratio:,.0f}×", ratio >= wanted))
    if PAPER in interned:
        spent = interned[PAPER]
        rows.append((f"{PAPER:,} interned: 2.5 ms", f"{1e3 * spent:.2f} ms", spent <= 2.5e-3))
    if HUGE in texts:
        growth = (texts[HUGE] / HUGE) / (texts[TENFOLD] / TENFOLD)
        memory = max((m.texts.memory or 0) for m in hgpo[HUGE]) / 2**30
        rows.append((f"{HUGE:,} from texts: under 60 s", f"{texts[HUGE]:.1f} s", texts[HUGE] < 60))
        rows.append((f"{HUGE:,} from texts: 8 GiB beyond the input", f"{memory:.2f} GiB", 0 < memory < 8))
        rows.append((f"{HUGE:,}: at most 3× the time per step of {TENFOLD:,}", f"{growth:.2f}×", growth <= 3))
    return rows


def fallen(measured: dict[str, float], baseline: dict[str, float]) -> list[str]:
    """A line of text for each ratio that is more than `TOLERANCE` below the recorded ratio."""
    return [
        f"{name}: {measured[name]:,.0f}× the speed of the published way, recorded were {recorded:,.0f}×"
        for name, recorded in baseline.items()
        if name in measured and measured[name] < recorded * (1 - TOLERANCE)
    ]


def show(console: Console, measurements: list[Measurement], published: dict[int, Published]) -> None:
    """One row per size and estimator, then the targets."""
    table = Table(
        "steps", "estimator", "interned, ms", "from texts, ms", "published", "interned", "from texts", "memory"
    )
    for m in measurements:
        reference, is_hgpo = published[m.steps], "hgpo" in m.estimator
        ratio = (lambda timing, reference=reference: f"{reference.seconds / timing.minimum:,.0f}×") if is_hgpo else None
        table.add_row(
            f"{m.steps:,}",
            m.estimator,
            f"{1e3 * m.interned.minimum:,.2f} ({1e3 * m.interned.median:,.2f})",
            f"{1e3 * m.texts.minimum:,.2f} ({1e3 * m.texts.median:,.2f})",
            f"{reference.seconds:,.{0 if reference.extrapolated else 2}f} s{' *' if reference.extrapolated else ''}"
            if is_hgpo
            else "",
            ratio(m.interned) if ratio else "",
            ratio(m.texts) if ratio else "",
            "" if m.texts.memory is None else f"{m.texts.memory / 2**20:,.0f} MiB",
            end_section=m.estimator == list(ESTIMATORS)[-1],
        )
    console.print(table)
    console.print("Least CPU time (median in brackets); ratios of the least. * extrapolated. Memory: from texts.")
    for reference in published.values():
        if not reference.extrapolated:
            console.print(
                f"published, {reference.steps:,}: returns {reference.returns:.2f} s, groups {reference.groups:.2f} s"
            )
    for target, found, met in targets(measurements, published):
        console.print(f"{'met' if met else 'MISSED':7} {target}: {found}")


def main() -> int:
    """Measure, show, and compare with what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{PAPER:,} steps alone")
    parser.add_argument("--large", action="store_true", help=f"also {LARGE:,} and {HUGE:,} steps")
    parser.add_argument("--check", action="store_true", help="fail if a ratio fell or a published result differs")
    parser.add_argument("--update-baseline", action="store_true", help=f"write the ratios to {BASELINE.name}")
    parser.add_argument("--measure", type=int, metavar="STEPS", help="measure one size and print it as JSON")
    arguments = parser.parse_args()
    if arguments.measure:
        results = measure(batch_of(arguments.measure), REPEATS.get(arguments.measure, 5))
        print(json.dumps([asdict(m) for m in results]))
        return 0

    sizes: tuple[int, ...] = (PAPER,) if arguments.quick else (PAPER, TENFOLD)
    published = {steps: measure_published(batch_of(steps), PUBLISHED_REPEATS[steps]) for steps in sizes}
    if arguments.large:
        sizes += (LARGE, HUGE)
        published |= {steps: published[max(published)].at(steps) for steps in (LARGE, HUGE)}
    measurements = [m for steps in sizes for m in measure_apart(steps)]
    console = Console(width=140)
    show(console, measurements, published)

    measured = ratios(measurements, published)
    if arguments.update_baseline:
        rounded = {name: float(f"{ratio:.3g}") for name, ratio in measured.items()}
        BASELINE.write_text(json.dumps(rounded, indent=2) + "\n")
    if arguments.check:
        problems = fallen(measured, json.loads(BASELINE.read_text()))
        for problem in problems:
            console.print(f"slower than recorded: {problem}")
        return 1 if problems else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
