"""The samplers' table of the documentation is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from hgpo.policies.backends import BACKENDS

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_stored_figures() -> None:
    found = json.loads((ROOT / "benchmarks" / "samplers.cpu.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "language-models.md").read_text(encoding="utf-8")
    for precision, samplers in found["precisions"].items():
        for name in samplers.keys() & BACKENDS.names():
            one = samplers[name]
            gap = one["log_prob_gap"]
            figures = (
                f"{one['tokens_per_second']:.0f} | {one['times_transformers']:.2f} | {one['seconds_start']:.0f} | "
                f"{gap['mean']:.1e} | {gap['max']:.1e}"
            )
            assert f"| {precision} | `{name}` | {figures} |" in page
    assert all(one["log_prob_gap"]["max"] <= 1e-4 for one in found["precisions"]["float32"].values())
    assert all(one["log_prob_gap"]["mean"] <= 0.05 for one in found["precisions"]["bfloat16"].values())
