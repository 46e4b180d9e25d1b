"""The page of figures that papers and repositories report: every row has a source, and the spread is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

import field_page

ROOT = Path(__file__).parents[3]

STORED = field_page.figures_of(ROOT / "benchmarks" / "field.json")
ROW: dict[str, Any] = {
    "method": "HGPO",
    "source": "arXiv:2602.22817",
    "reported_by": "HGPO paper",
    "date": "2026-02",
    "benchmark": "ALFWorld",
    "split": "valid_seen",
    "model": "1.5B",
    "history_length": 2,
    "seeds": None,
    "catalogue": None,
    "checkpoint": None,
    "success": 92.77,
    "checked": "second hand",
}


def figure(**changes: Any) -> Any:
    return field_page.Figure(**ROW | changes)


def test_every_row_has_a_source_that_can_be_looked_up() -> None:
    for one in STORED:
        for source in filter(None, (one.source, one.read_in)):
            link = urlsplit(field_page.link_of(source))
            assert link.scheme == "https"
            assert link.netloc in {"arxiv.org", "github.com"}, source
            assert len(link.path.strip("/").split("/")) >= 2, source


def test_no_row_is_stored_twice() -> None:
    assert len(set(STORED)) == len(STORED)


def test_the_main_methods_are_reported_by_several_sources() -> None:
    for method in ("HGPO", "GiGPO", "G2PO", "GRPO"):
        assert len({one.reported_by for one in STORED if one.method == method}) >= 2, method


@pytest.mark.parametrize(
    "changes",
    [
        {"source": ""},
        {"source": "arXiv:2602"},
        {"source": "the HGPO paper"},
        {"source": "http://arxiv.org/abs/2602.22817"},
        {"source": "https://arxiv.org/"},
        {"date": "2026"},
        {"success": 192.77},
        {"checked": "probably"},
        {"checked": "source", "read_in": "https://github.com/someone/hgpo"},
        {"catalogue": 1000},
        {"score": 80.0},
        {"unknown": 1},
    ],
)
def test_a_row_without_a_source_or_with_contradictions_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        figure(**changes)


@pytest.mark.parametrize("left_out", ["source", "reported_by", "date", "checked", "split", "seeds", "checkpoint"])
def test_what_a_reader_needs_is_required(left_out: str) -> None:
    with pytest.raises(ValidationError, match=left_out):
        field_page.Figure(**{name: value for name, value in ROW.items() if name != left_out})


def test_the_spread_of_one_method_between_sources() -> None:
    other, third = "SERL paper", "someone's runs"
    found = field_page.spreads(
        [
            figure(success=92.0),
            figure(success=94.0, history_length=4),
            figure(success=85.5, reported_by=other, split=None),
            figure(success=50.0, reported_by=third, split="valid_unseen"),
            figure(success=20.0, reported_by=third, model=None),
            figure(success=70.0, reported_by=other, method="GRPO"),
            figure(success=60.0, benchmark="WebShop", split=None),
            figure(success=61.0, benchmark="WebShop", split=None, reported_by=other),
            figure(success=64.0, benchmark="WebShop", split=None, reported_by=third, catalogue=1000),
        ]
    )
    rows = [(one.benchmark, one.method, one.model, one.sources, one.lowest, one.highest) for one in found]
    assert rows == [("ALFWorld", "HGPO", "1.5B", 2, 85.5, 94.0), ("WebShop", "HGPO", "1.5B", 3, 60.0, 64.0)]


def test_the_page_shows_what_the_source_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "field.json"
    path.write_text(field_page.TypeAdapter(list[field_page.Figure]).dump_json([figure()]).decode(), encoding="utf-8")
    source = "[HGPO paper](https://arxiv.org/abs/2602.22817), 2026-02"
    cells = f"| HGPO | 1.5B | 2 | valid_seen | – | – | 92.77 | {source} | second hand |  |"
    assert cells in field_page.field_page(path)
