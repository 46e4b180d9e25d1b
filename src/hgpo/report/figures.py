"""The overview's charts as figures for a paper: PDF for the paper, PNG to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hgpo.drawing import MARKERS, PALETTE, check_matplotlib, dash, empty_figure, save_figure
from hgpo.files import whole_file
from hgpo.report.charts import Rows, level_rows, overview_rows
from hgpo.report.report import Report

_FIGURES = (
    ("success", "Success", ("success",), 100.0, "% of trajectories"),
    ("reward", "Reward", ("reward",), 1.0, "sum of rewards"),
    ("length", "Length", ("length",), 1.0, "steps"),
    ("usable", "Usable group", ("usable",), 100.0, "% of steps"),
    ("sizes", "Group size", ("size_p50", "size_p10", "size_p90"), 1.0, "steps, median and 10–90 %"),
    ("variance", "Variance explained (adjusted)", ("adjusted",), 100.0, "% of variance"),
    ("disagreement", "Sign unlike the level before", ("disagreement",), 100.0, "% of steps"),
    ("weight", "Effective weight", ("weight",), 1.0, "mean weight"),
)


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write one PDF and one PNG per chart that has values; returns their paths.

    Raises:
        ValueError: matplotlib is not installed.
    """
    check_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    updates, levels = overview_rows(report), level_rows(report)
    first, followed = report.estimators[0], report.followed
    episode = "episode" if followed is first else f"episode ({first.label})"
    for name, title, fields, scale, unit in _FIGURES:
        rows = [row for row in [*updates, *levels] if row.get(fields[0]) is not None]
        if not rows:
            continue
        with empty_figure(3.3, 2.2) as figure:
            axes = figure.add_subplot()
            _draw(axes, rows, fields, scale, episode)
            axes.set(title=title, xlabel="update", ylabel=unit)
            if "level" in rows[0]:
                axes.legend(title=f"levels of {followed.label}")
            for suffix in (".pdf", ".png"):
                path = folder / f"{name}{suffix}"
                with whole_file(path) as partial:
                    save_figure(figure, partial, suffix)
                written.append(path)
    return written


def _draw(axes: Any, rows: Rows, fields: tuple[str, ...], scale: float, episode: str) -> None:
    """One line per level, or one line; with three fields, a band from the second to the third.

    `episode` is what the episode level is called.
    """
    levels = list(dict.fromkeys(row.get("level") for row in rows))
    for place, level in enumerate(levels):
        line = [row for row in rows if row.get("level") == level]
        x = [row["update"] for row in line]
        y = [scale * row[fields[0]] for row in line]
        number = (
            len(PALETTE) - 1 if level == "episode" else (place if level is None else int(level)) % (len(PALETTE) - 1)
        )
        label = None if level is None else (episode if level == "episode" else f"level {level}")
        axes.plot(
            x,
            y,
            color=PALETTE[number],
            linestyle=dash(number),
            marker=MARKERS[number],
            markersize=2,
            linewidth=1,
            label=label,
        )
        if len(fields) == 3:
            low, high = ([scale * row[field] for row in line] for field in fields[1:])
            axes.fill_between(x, low, high, color=PALETTE[number], alpha=0.15, linewidth=0)
