"""The samplers agree with the trainer as far as docs/results/engines.md says."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_gaps_are_rounding() -> None:
    found = json.loads((ROOT / "benchmarks" / "samplers.cpu.json").read_text(encoding="utf-8"))
    assert all(one["log_prob_gap"]["max"] <= 1e-4 for one in found["precisions"]["float32"].values())
    assert all(one["log_prob_gap"]["mean"] <= 0.05 for one in found["precisions"]["bfloat16"].values())
