"""The data behind what docs/choosing.md says of games of many steps and of chains."""

from __future__ import annotations

import json
from pathlib import Path

from long_games.contenders import CONTENDERS, REFERENCE, SHIPPED
from long_games.tables import ALL

ROOT = Path(__file__).parents[4]
STORED = json.loads((ROOT / "benchmarks" / "multistep.json").read_text(encoding="utf-8"))


def test_the_stored_figures_are_of_reporting_instances() -> None:
    assert STORED["settings"] == {
        "purpose": "report", "kl": 0.01, "rate": 0.03, "batches": 50, "updates": 40, "rollouts": 8, "gamma": 0.95
    }  # fmt: skip
    assert {row["estimator"] for row in STORED["rows"]} >= set(CONTENDERS)
    assert {len(curve["success"]) for curve in STORED["curves"]} == {41}
    assert {curve["success"][0] for curve in STORED["curves"]} == {30.0}


def test_what_the_page_says_of_nested_td() -> None:
    others = [
        row for row in STORED["rows"] if row["figure"] == "kl" and row["estimator"] in SHIPPED.keys() - {REFERENCE}
    ]
    low, *_, high = sorted(-row["difference"] for row in others if row["family"] == ALL)
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    ends = [row for row in STORED["rows"] if row["figure"] == "kl end" and row["family"] == ALL]
    first, *_, second_last, _ = sorted(
        -row["difference"] for row in ends if row["estimator"] in SHIPPED.keys() - {REFERENCE}
    )
    end = f"at its end mostly {first:.1f} to {second_last:.1f}"
    assert f'averaged over training {low:.1f} to {high:.1f} points above others, {end}; not in "policy only"' in page
    assert all(row["high"] < 0 for row in others if row["family"] in (ALL, "search", "loops", "household"))
    assert any(row["low"] > 0 for row in others if row["family"] == "policy only")


def test_what_the_page_takes_from_the_chains() -> None:
    """The cosines that the short version names."""
    rows = json.loads((ROOT / "benchmarks" / "yardsticks.json").read_text(encoding="utf-8"))["rows"]
    cosine = {row["estimator"]: row["cosine"] for row in rows if (row["problem"], row["N"]) == ("A extreme", 8)}
    said = {"level 0": 0.48, "gigpo": 0.48, "rloo": 0.48, "paper": 0.65, "pooled": 0.78, "mixed_effects": 0.83}
    assert {name: round(cosine[name], 2) for name in said} == said
    assert abs(cosine["grpo std"] - 0.48) < 0.005
