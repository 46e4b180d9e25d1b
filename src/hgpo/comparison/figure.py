"""The comparison as a picture: success with intervals on the left, learning curves on the right if there are any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hgpo.comparison.curves import Curve
from hgpo.comparison.table import Comparison
from hgpo.drawing import DASHES, FIGURE_FORMATS, MARKERS, PALETTE, dash, empty_figure, save_figure
from hgpo.evaluation import Rate
from hgpo.files import whole_file

_WIDTH, _WIDTH_WITH_CURVES = 3.6, 7.2
_LEAST_HEIGHT, _HEIGHT_PER_ROW = 2.4, 0.22
"""In inches."""


def check_figure(path: Path) -> None:
    """A `ValueError` where the path names no picture that can be written."""
    if path.suffix.lower() not in FIGURE_FORMATS:
        raise ValueError(
            f"--figure {path}: the name of a figure ends in {', '.join(FIGURE_FORMATS)}; choose one of them"
        )
    if path.is_dir():
        raise ValueError(f"--figure {path} is a folder; give the name of a file")


def draw_comparison(comparison: Comparison, curves: Sequence[Curve], smooth: int, path: Path) -> None:
    """Write the picture whole or not at all, in the format that the path ends in; the same each time.

    Args:
        comparison: Success, and the labels.
        curves: Learning curves; none: the left side alone.
        smooth: How many updates a point of a curve is the mean of; it is said above them.
        path: Where it goes; see `check_figure`.
    """
    height = max(_LEAST_HEIGHT, 1 + _HEIGHT_PER_ROW * len(comparison.rows))
    with empty_figure(_WIDTH_WITH_CURVES if curves else _WIDTH, height) as figure:
        left, *right = figure.subplots(1, 2 if curves else 1, squeeze=False)[0]
        _draw_success(left, comparison, _numbers(len(comparison.rows), curves))
        if curves:
            _draw_curves(right[0], curves, smooth)
        with whole_file(path) as partial:
            save_figure(figure, partial, path.suffix.lower())


def _numbers(rows: int, curves: Sequence[Curve]) -> list[int]:
    """Number of each row's colour: that of its curve, and a colour of its own where it has none."""
    of_curve = {place: number for number, curve in enumerate(curves) for place in curve.entries}
    others = iter(range(len(curves), len(curves) + rows))
    return [of_curve[place] if place in of_curve else next(others) for place in range(rows)]


def _draw_success(axes: Any, comparison: Comparison, numbers: Sequence[int]) -> None:
    """A point with its interval per row, the first on top; a line through the baseline."""
    rates = next(column.cells for column in comparison.columns if column.name == "success")
    for place, (rate, number) in enumerate(zip(rates, numbers, strict=True)):
        if isinstance(rate, Rate):
            _draw_rate(axes, place, rate, number)
    baseline = rates[comparison.baseline]
    if len(rates) > 1 and isinstance(baseline, Rate):
        axes.axvline(100 * baseline.mean, color="#999999", linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(rates)), [row.label for row in comparison.rows])
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.set(title="Evaluation", xlabel="success, % (95 % interval)")


def _draw_rate(axes: Any, place: int, rate: Rate, number: int) -> None:
    reach = [[100 * max(0.0, rate.mean - rate.low)], [100 * max(0.0, rate.high - rate.mean)]]
    colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    axes.errorbar([100 * rate.mean], [place], xerr=reach, color=colour, marker=marker, markersize=4, capsize=2)


def _draw_curves(axes: Any, curves: Sequence[Curve], smooth: int) -> None:
    """A line per curve; one of several runs has a band, and the legend says what it is."""
    lines = []
    for number, curve in enumerate(curves):
        colour = PALETTE[number % len(PALETTE)]
        # beyond the last colour the dashes move on by one, so that no two lines look alike
        style = dash((number + number // len(PALETTE)) % len(DASHES))
        lines += axes.plot(curve.updates, _percent(curve.mean), color=colour, linestyle=style, linewidth=1)
        if curve.runs > 1:
            low, high = _percent(curve.low), _percent(curve.high)
            axes.fill_between(curve.updates, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.legend(lines, [legend(curve) for curve in curves], fontsize="small")
    said = "" if smooth == 1 else f", mean of the last {smooth} updates"
    axes.set(title=f"Training{said}", xlabel="update", ylabel="success, %")


def legend(curve: Curve) -> str:
    """What the legend says of a curve."""
    return curve.label if curve.runs == 1 else f"{curve.label}: mean of {curve.runs} seeds, band min to max"


def _percent(fractions: Sequence[float]) -> list[float]:
    return [100 * fraction for fraction in fractions]
