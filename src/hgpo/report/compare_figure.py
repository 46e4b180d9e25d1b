"""Learning curves: success in training per update, one line per row of the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgpo.report.compare_entries import Entry
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.utils.files import whole_file
from hgpo.utils.plot_style import DASHES, FIGURE_FORMATS, PALETTE, dash, empty_figure, save_figure
from hgpo.utils.text import counted

Success = dict[int, float]
"""Update -> success of the episodes played for it, 0-1."""


def check_figure(path: Path) -> None:
    """Raise a `ValueError` if no figure can be written to this path."""
    if path.suffix.lower() not in FIGURE_FORMATS:
        raise ValueError(f"--figure {path}: the name must end in {', '.join(FIGURE_FORMATS)}")
    if path.is_dir():
        raise ValueError(f"--figure {path} is a folder; give the name of a file")


def draw_curves(entries: Sequence[Entry], smooth: int, path: Path) -> None:
    """Draw success while training by update, a line per label; the same input gives the same bytes.

    A line is the mean over the runs of a label at the updates that all have, its band their lowest to highest. A point
    is the mean of the last `smooth` updates. Result files that belong to no run have no curve.

    Raises:
        ValueError: `smooth` is below 1, no run has metrics, or the metrics of a run are damaged.
    """
    if smooth < 1:
        raise ValueError(f"--smooth {smooth}: at least 1 update")
    runs = dict.fromkeys((entry.label, entry.path) for entry in entries if entry.config)
    often = Counter(label for label, _ in runs)
    curves: dict[str, list[Success]] = {}
    for label, folder in runs:
        if measured := _smoothed(read_metrics(RunDirectory(folder)), smooth):
            curves.setdefault(label, []).append(measured)
    if not curves:
        raise ValueError("--figure: no run has metrics of an update")
    with empty_figure(4.5, 3.0) as figure:
        axes, lines, names = figure.subplots(), [], []
        for number, (label, found) in enumerate(curves.items()):
            updates = [update for update in found[0] if all(update in one for one in found)]
            percent_RU = 100 * np.array([[one[update] for update in updates] for one in found])
            # one dash further each time the colours begin again, so that no two lines look alike
            colour, style = PALETTE[number % len(PALETTE)], dash((number + number // len(PALETTE)) % len(DASHES))
            lines += axes.plot(updates, percent_RU.mean(axis=0), color=colour, linestyle=style, linewidth=1)
            lines[-1].set_marker("o" if len(updates) == 1 else "")  # a line of one point has no length
            of = f" of {often[label]}" if often[label] > len(found) else ""
            mean = f"{label}: mean of {counted(len(found), 'run')}{of}, band min to max"
            names.append(mean if often[label] > 1 else label)
            axes.fill_between(updates, percent_RU.min(axis=0), percent_RU.max(axis=0), color=colour, alpha=0.15)
        axes.legend(lines, names, fontsize="small")  # `label=` would drop names that begin with "_"
        mean = "" if smooth == 1 else f", mean of the last {smooth} updates"
        axes.set(title=f"Success in training{mean}", xlabel="update", ylabel="success, %")
        with whole_file(path) as partial:
            save_figure(figure, partial, path.suffix.lower())


def _smoothed(rows: Sequence[dict[str, object]], window: int) -> Success:
    found = {row.get("update"): row.get("success") for row in rows}
    kept = {
        u: float(s) for u, s in found.items() if isinstance(u, int) and isinstance(s, (int, float)) and np.isfinite(s)
    }
    values = list(kept.values())
    return {u: float(np.mean(values[max(0, place + 1 - window) : place + 1])) for place, u in enumerate(kept)}
