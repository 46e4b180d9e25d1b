"""How often 95 % intervals of a gain contain the true gain, on simulated panels: prints the table of decision 011.

.venv/bin/python benchmarks/gain_intervals.py
"""

from __future__ import annotations

import math

import numpy as np

from hgpo.columns import FloatArray
from hgpo.evaluation.statistics import NORMAL_95, Evaluation, gain, rate

PANELS = 1000
CASES = ((16, 0.0, 0.05), (16, 0.02, 0.1), (64, 0.01, 0.03), (140, 0.38, 0.55), (256, 0.35, 0.6))


def main() -> None:
    rng = np.random.default_rng(0)
    print("| games, success before -> after | normal | Newcombe |\n|---|---|---|")
    for games, before, after in CASES:
        held = np.zeros(2)
        for _ in range(PANELS):
            first, second = 1.0 * (rng.random(games) < before), 1.0 * (rng.random(games) < after)
            change = gain(panel(first), panel(second))
            for method, (low, high) in enumerate((normal(second - first), (change.low, change.high))):
                held[method] += low <= after - before <= high
        shares = " | ".join(f"{share:.2f}".removeprefix("0") for share in held / PANELS)
        print(f"| {games}, {100 * before:g} -> {100 * after:g} % | {shares} |")


def normal(difference_N: FloatArray) -> tuple[float, float]:
    half = NORMAL_95 * float(difference_N.std(ddof=1)) / math.sqrt(len(difference_N))
    return float(difference_N.mean()) - half, float(difference_N.mean()) + half


def panel(won_N: FloatArray) -> Evaluation:
    won = {str(game): float(outcome) for game, outcome in enumerate(won_N)}
    success = rate(list(won.values()))
    return Evaluation("panel", 0.4, (1,), success, 0.0, (success.mean,), {}, 1.0, 1.0, None, won)


if __name__ == "__main__":
    main()
