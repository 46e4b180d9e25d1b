"""Figures as texts, the same in every format for people."""

from __future__ import annotations

from math import floor, log10

from hgpo.comparison.table import Cell, Kind
from hgpo.evaluation import Rate

UNKNOWN = "–"
_DECIMALS: dict[Kind, int] = {"score": 3, "length": 1, "count": 0}


def shown(cell: Cell, kind: Kind) -> str:
    """A cell as people read it.

    Example: `shown(Rate(0.523, 0.462, 0.584, 256), "rate")` is "52.3 (46.2–58.4)", `shown(None, "rate")` a dash.
    """
    if cell is None or isinstance(cell, str):
        return UNKNOWN if cell is None else cell
    if isinstance(cell, Rate):
        return f"{100 * cell.mean:.1f} ({100 * cell.low:.1f}–{100 * cell.high:.1f})"
    if kind == "amount":
        return significant(cell)
    if kind == "share":
        return f"{100 * cell:.1f}"
    return f"{cell:,.{_DECIMALS[kind]}f}"


def points(gain: Rate) -> str:
    """A difference in points: "+20.3 (+14.1 to +26.3)"."""
    return f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, never in powers of ten: 1234.5 is "1,234", 0.00123 is "0.00123"."""
    if value == 0:
        return "0"
    return f"{value:,.{max(0, digits - 1 - floor(log10(abs(value))))}f}"
