"""The comparison of estimators: its tables, and that the page of results shows what was measured."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "recipes" / "quickstart"
RESULTS = FOLDER.parents[1] / "docs" / "results" / "trained-policies.md"
compare = runpy.run_path(str(FOLDER / "compare.py"))

FOUND = {
    "seeds": [1, 2, 3],
    "overrides": [],
    "before": 30.0,
    "after": {"gigpo": [40.0, 42.0, 44.0], "hgpo": [41.0, 45.0, 43.0]},
}


def test_success() -> None:
    assert compare["success_table"](FOUND)[2:] == [
        "| gigpo | 30.0 | 40.0, 42.0, 44.0 | 42.0 ± 2.0 | +12.0 |",
        "| hgpo | 30.0 | 41.0, 45.0, 43.0 | 43.0 ± 2.0 | +13.0 |",
    ]


def test_differences_are_taken_seed_by_seed() -> None:
    """1, 3, -1: mean 1, sd 2, and t = 4.303 for two degrees of freedom: 4.303 * 2 / sqrt(3) = 4.97."""
    assert compare["difference_table"](FOUND, "gigpo")[2:] == ["| hgpo | +1.0 (-4.0 to +6.0) | 2 of 3 seeds |"]


def test_one_seed_has_no_interval() -> None:
    assert compare["interval"]([2.5]) == "+2.5"


def test_every_name_is_an_estimator_with_known_options() -> None:
    from hgpo.config import load_config

    for overrides in compare["ESTIMATORS"].values():
        assert load_config(FOLDER / "hgpo.toml", overrides).advantage.estimator


@pytest.mark.parametrize(
    ("figures", "page", "tables"),
    [
        ("comparison.json", RESULTS, ("success_table", "difference_table")),
        ("comparison_states.json", RESULTS, ("success_table", "difference_table")),
    ],
)
def test_the_page_shows_what_was_measured(figures: str, page: Path, tables: tuple[str, ...]) -> None:
    found = json.loads((FOLDER / figures).read_text())
    text = page.read_text(encoding="utf-8")
    for table in tables:
        lines = compare[table](found, "gigpo") if table == "difference_table" else compare[table](found)
        for line in lines:
            assert line in text
