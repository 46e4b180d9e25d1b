"""Draws a comparison: success with its interval for each section, and learning curves of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.comparison.entries import Entry
from hgpo.comparison.table import Comparison, Mean, Section
from hgpo.drawing import DASHES, FIGURE_FORMATS, MARKERS, PALETTE, dash, empty_figure, save_figure
from hgpo.evaluation import Rate
from hgpo.files import whole_file
from hgpo.runs.folder import RunDirectory, read_metrics

_PANEL_WIDTH, _LEAST_HEIGHT, _HEIGHT_PER_ROW = 3.6, 2.4, 0.22  # inches


def check_figure(path: Path) -> None:
    """Raise a `ValueError` if no figure can be written to this path."""
    if path.suffix.lower() not in FIGURE_FORMATS:
        raise ValueError(f"--figure {path}: the name must end in {', '.join(FIGURE_FORMATS)}")
    if path.is_dir():
        raise ValueError(f"--figure {path} is a folder; give the name of a file")


def draw_comparison(comparison: Comparison, entries: Sequence[Entry], smooth: int, path: Path) -> None:
    """Write the figure whole or not at all; the same input gives the same bytes.

    A point of a curve is the mean of the last `smooth` updates.

    Raises:
        ValueError: `smooth` is below 1, or the metrics of a run are damaged.
    """
    if smooth < 1:
        raise ValueError(f"--smooth {smooth}: at least 1 update")
    curves = {label: found for label in comparison.labels if (found := _curves(entries, label, smooth))}
    panels = len(comparison.sections) + bool(curves)
    height = max(_LEAST_HEIGHT, 1 + _HEIGHT_PER_ROW * len(comparison.labels))
    with empty_figure(_PANEL_WIDTH * panels, height) as figure:
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for section, place in zip(comparison.sections, axes, strict=False):
            _draw_success(place, section, comparison.labels)
        if curves:
            _draw_curves(axes[-1], curves, comparison.labels, smooth)
        with whole_file(path) as partial:
            save_figure(figure, partial, path.suffix.lower())


def _curves(entries: Sequence[Entry], label: str, smooth: int) -> list[dict[int, float]]:
    """Update -> success in training of every run of a row."""
    found = []
    for folder in dict.fromkeys(entry.path for entry in entries if entry.label == label and entry.config):
        rows = [row for row in read_metrics(RunDirectory(folder)) if isfinite(row.get("success") or 0.0)]
        values = {row["update"]: float(row["success"]) for row in rows if row.get("success") is not None}
        last = list(values.values())
        found.append({u: float(np.mean(last[max(0, n + 1 - smooth) : n + 1])) for n, u in enumerate(values)})
    return [curve for curve in found if curve]


def _draw_success(axes: Any, section: Section, labels: Sequence[str]) -> None:
    for place, row in enumerate(section.rows):
        cell, number = section.cell(row.label, "success"), labels.index(row.label)
        low, high = (cell.mean - cell.low, cell.high - cell.mean) if isinstance(cell, Rate) else (0.0, 0.0)
        if isinstance(cell, Mean):
            low = high = cell.deviation
        if isinstance(cell, (Mean, Rate)):
            style = {"color": PALETTE[number % len(PALETTE)], "marker": MARKERS[number % len(MARKERS)], "capsize": 2}
            axes.errorbar([100 * cell.mean], [place], xerr=[[100 * low], [100 * high]], markersize=4, **style)
    axes.set_yticks(range(len(section.rows)), [row.label for row in section.rows])
    axes.set_ylim(len(section.rows) - 0.5, -0.5)
    axes.set(
        title=f"{section.environment}, {section.split}", xlabel="success, % (bar: 95 % CI; n > 1: ± SD over seeds)"
    )


def _draw_curves(axes: Any, curves: dict[str, list[dict[int, float]]], labels: Sequence[str], smooth: int) -> None:
    """The mean over the runs of a row at the updates that all have; the band is from the lowest to the highest."""
    for label, runs in curves.items():
        updates = [update for update in runs[0] if all(update in run for run in runs)]
        percent_RU = 100 * np.array([[run[update] for update in updates] for run in runs])
        number = labels.index(label)
        style = {"color": PALETTE[number % len(PALETTE)], "linestyle": dash(number % len(DASHES)), "linewidth": 1}
        name = label if len(runs) == 1 else f"{label}: mean of {len(runs)} runs, band min to max"
        axes.plot(updates, percent_RU.mean(axis=0), label=name, **style)
        axes.fill_between(updates, percent_RU.min(axis=0), percent_RU.max(axis=0), color=style["color"], alpha=0.15)
    axes.legend(fontsize="small")
    said = "" if smooth == 1 else f", mean of the last {smooth} updates"
    axes.set(title=f"Training{said}", xlabel="update", ylabel="success, %")
