"""The comparison of the two engines: its table, and that the documentation shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines import draw, table

ROOT = Path(__file__).parents[3]
MEASURED = ROOT / "benchmarks" / "engines.json"


def run(success: list[float]) -> dict[str, Any]:
    curve = {"success": success, "seconds_collect": [1.0] * 12, "seconds_update": [2.0, 4.0] * 6}
    return {"before": 0.25, "after": 0.5, "curve": curve}


FOUND = {
    "recipe": "toy",
    "updates": 12,
    "runs": {"built-in": run([0.2] * 10 + [0.4, 0.6]), "verl": run([0.3] * 12)},
}


def test_the_table() -> None:
    assert table(FOUND).splitlines() == [
        "| | built-in | verl |",
        "|---|---|---|",
        "| held-out games, before | 25.0 % | 25.0 % |",
        "| rollouts of updates 1–10 | 20.0 % | 30.0 % |",
        "| rollouts of updates 11–12 | 50.0 % | 30.0 % |",
        "| held-out games, after | 50.0 % | 50.0 % |",
        "| seconds an update, collecting | 1.0 | 1.0 |",
        "| seconds an update, updating | 3.0 | 3.0 |",
    ]


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')
    draw(FOUND, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_log_shows_what_was_measured() -> None:
    """docs/results/engines.md is generated; the log has the same rows."""
    log = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    for line in table(json.loads(MEASURED.read_text())).splitlines()[2:]:
        assert line in log
