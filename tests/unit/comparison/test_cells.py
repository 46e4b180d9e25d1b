from __future__ import annotations

import pytest

from hgpo.comparison.cells import points, shown, significant
from hgpo.comparison.table import Cell, Kind
from hgpo.evaluation import Rate


@pytest.mark.parametrize(
    ("cell", "kind", "text"),
    [
        (Rate(0.5234, 0.46249, 0.58351, 256), "rate", "52.3 (46.2–58.4)"),
        (Rate(0.0, 0.0, 1.0, 1), "rate", "0.0 (0.0–100.0)"),
        (None, "rate", "–"),
        ("after", "text", "after"),
        (0.5234, "score", "0.523"),
        (0.5234, "share", "52.3"),
        (12.345, "length", "12.3"),
        (1234567, "count", "1,234,567"),
        (1234.5678, "count", "1,235"),
        (0.00123456, "amount", "0.00123"),
    ],
)
def test_figures_as_people_read_them(cell: Cell, kind: Kind, text: str) -> None:
    assert shown(cell, kind) == text


def test_a_difference_has_its_sign() -> None:
    assert points(Rate(0.203, 0.141, 0.263, 256)) == "+20.3 (+14.1 to +26.3)"
    assert points(Rate(-0.05, -0.1, 0.0, 256)) == "-5.0 (-10.0 to +0.0)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.03, "0.0300"),
        (4.0, "4.00"),
        (56.78, "56.8"),
        (1234.5, "1,234"),
        (-0.5, "-0.500"),
        (99999, "99,999"),
    ],
)
def test_three_digits_count(value: float, text: str) -> None:
    assert significant(value) == text
