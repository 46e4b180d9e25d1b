"""The cost of an update by the size of the policy: the shapes, the table, and one size measured for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from hgpo.policies.tiny import build_model
from model_sizes import SIZES, main, rows, show

ROOT = Path(__file__).parents[3]

FOUND: dict[str, Any] = {
    "device": "a device",
    "sizes": {
        "1M": {
            "parameters": 1_230_000,
            "tokens_per_second": 12_345.6,
            "seconds_collect": 1.0,
            "seconds_advantages": 0.01,
            "seconds_update": 2.99,
            "peak_memory_gib": 0.5,
        }
    },
}


def test_the_table() -> None:
    assert rows(FOUND) == [("1.2 M", "12,346", "0.50 GiB", "4.0", "25.0 %", "0.2 %", "74.8 %")]
    console = Console(record=True, width=120)
    show(FOUND, console)
    assert "12,346" in console.export_text()


@pytest.mark.parametrize("name", ["0.1M", "1M", "5M", "25M", "100M", "350M"])
def test_sizes_are_called_what_they_are(name: str) -> None:
    size = SIZES[name]
    with torch.device("meta"):
        model = build_model(200, hidden_size=size.hidden_size, layers=size.layers, heads=size.attention_heads)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert millions == pytest.approx(float(name.removesuffix("M")), rel=0.25)


@pytest.mark.slow
def test_a_size_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "sizes.json"
    games = ["environment.options.train_games=60", "warm_start.demonstrations=20", "warm_start.probe_games=4"]
    quick = [*games, "warm_start.max_updates=20", "evaluation.games=4", "rollout.tasks_per_update=2", "run.threads=1"]
    words = [str(tmp_path), "--device", "cpu", "--sizes", "0.1M", "--updates", "2", "-o", str(output), *quick]
    monkeypatch.setattr("sys.argv", ["model_sizes.py", *words])
    main()
    found = json.loads(output.read_text())
    assert found["overrides"] == quick
    [run] = found["sizes"].values()
    assert run["parameters"] == pytest.approx(0.1e6, rel=0.25)
    assert run["tokens_per_second"] > 0
    assert run["peak_memory_gib"] > 0


def test_the_page_shows_what_was_measured() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    files = sorted((ROOT / "benchmarks").glob("model_sizes.*.json"))
    assert files
    for file in files:
        for row in rows(json.loads(file.read_text())):
            assert f"| {' | '.join(row)} |" in page
