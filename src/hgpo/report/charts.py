"""The charts of the overview as Vega-Lite specifications, and the rows they draw."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

from hgpo.estimators.diagnostics import LevelSummary
from hgpo.report.analysis import UpdateFigures
from hgpo.report.report import Report
from hgpo.utils.files import whole_file
from hgpo.utils.plot_style import DASHES, MARKERS, PALETTE, check_matplotlib, dash, empty_figure, save_figure

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
CHART_HEIGHT = 150
UPDATES = {"field": "update", "type": "quantitative", "title": "update", "axis": {"tickMinStep": 1}}
"""What every chart has along its bottom."""
PERCENT = {"format": "~%"}
"""An axis of shares; with as many decimals as tell its marks apart."""

Rows = list[dict[str, Any]]

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


def overview_rows(report: Report) -> Rows:
    """One row per update: success, reward, discounted return, length.

    Where the run wrote metrics, success, reward and length are theirs: they also know updates whose steps were not
    stored.
    """
    rows: dict[int, dict[str, Any]] = {}
    for metrics in report.training.metrics if report.training else ():
        if isinstance(update := metrics.get("update"), int):
            names = {"success": "success", "reward": "reward", "length": "episode_length"}
            rows[update] = {name: metrics[key] for name, key in names.items() if is_number(metrics.get(key))}
    for figures in report.figures:
        computed = {"success": figures.success, "reward": figures.reward, "length": figures.length}
        rows[figures.update] = {**computed, **rows.get(figures.update, {}), "first_return": figures.first_return}
    return [{"update": update, **row} for update, row in sorted(rows.items())]


def is_number(value: object) -> bool:
    """Whether a value of metrics.jsonl can be drawn."""
    return isinstance(value, (int, float)) and isfinite(value)


def level_rows(report: Report) -> Rows:
    """One row per update and level, episode level included, with the figures the charts and tables show."""
    return [row for figures in report.figures for row in _levels_of(figures)]


def _levels_of(figures: UpdateFigures) -> Rows:
    return [{"update": figures.update, "level": level.label, **_figures(level)} for level in figures.summary.terms]


def level_names(report: Report) -> dict[str, str]:
    """What each level compares, by its label, in the order of `level_rows`."""
    return {level.label: level.name for figures in report.figures for level in figures.summary.terms}


def _figures(level: LevelSummary) -> dict[str, Any]:
    disagreement = None if level.sign_agreement is None else 1.0 - level.sign_agreement
    return {
        "usable": level.usable_share,
        "weight": level.mean_weight,
        "size_p10": level.size_p10,
        "size_p50": level.size_p50,
        "size_p90": level.size_p90,
        "explained": level.variance_explained,
        "adjusted": level.variance_explained_adjusted,
        "disagreement": disagreement,
        "prompts": level.prompts_differ_steps,
    }


def overview_charts(report: Report) -> list[dict[str, Any]]:
    """Charts in reading order: {"id", "title", "note", "spec"}; a chart without any value is left out."""
    updates, levels = overview_rows(report), level_rows(report)
    charts = [
        _lines("success", "Success", "Share of trajectories that won.", updates, "success", percent=True),
        _lines("reward", "Reward", "Mean sum of rewards of a trajectory, undiscounted.", updates, "reward"),
        _lines("return", "Return at the start", "Mean discounted return of first steps.", updates, "first_return"),
        _lines("length", "Length", "Mean steps of a trajectory.", updates, "length"),
        _lines(
            *("usable", "Steps with a usable group", "Share of steps the level had something to say about."),
            *(levels, "usable"),
            percent=True,
        ),
        _lines(
            *(
                "sizes",
                "Group size",
                "Half of the steps with a group are in one of at most this size; band: 10 to 90 %.",
            ),
            *(levels, "size_p50"),
            band=("size_p10", "size_p90"),
        ),
        _lines(
            *("variance", "Variance of returns explained", "Beyond what so many groups explain by chance (adjusted)."),
            *(levels, "adjusted"),
            percent=True,
        ),
        _lines(
            *("disagreement", "Sign disagreement", "Steps whose level and the one before it have opposite signs."),
            *(levels, "disagreement"),
            percent=True,
        ),
        _lines(
            *("weight", "Effective weight", "Mean over all steps of the level's weight where it is used, 0 elsewhere."),
            *(levels, "weight"),
        ),
    ]
    return [chart for chart in charts if chart is not None]


def window_of(updates: int) -> int:
    """Over how many updates a curve is smoothed: an eighth of them, 10 at most; 1, not at all, of fewer than 12."""
    return 1 if updates < 12 else min(10, max(3, updates // 8))


def with_means(rows: Rows, field: str, window: int) -> Rows:
    """The rows with `smooth`: mean of `field` in the last `window` of them (fewer at first), for each level."""
    last: dict[Any, list[float]] = {}
    made = []
    for row in rows:
        values = last.setdefault(row.get("level"), [])
        values.append(row[field])
        made.append({**row, "smooth": sum(values[-window:]) / len(values[-window:])})
    return made


def _lines(
    name: str,
    title: str,
    note: str,
    rows: Rows,
    field: str,
    *,
    percent: bool = False,
    band: tuple[str, str] | None = None,
) -> dict[str, Any] | None:
    """A line per level (or one line) over updates; of many updates a smoothed one, with what was measured behind it."""
    kept = {"update", "level", field, *(band or ())}
    values = [{key: value for key, value in row.items() if key in kept} for row in rows if row.get(field) is not None]
    if not values:
        return None
    axis = PERCENT if percent else {}
    y = {"field": field, "type": "quantitative", "title": None, "axis": axis, "scale": {"zero": field != "reward"}}
    encoding: dict[str, Any] = {"x": dict(UPDATES), "y": y}
    levels = list(dict.fromkeys(row["level"] for row in values if "level" in row))
    if levels:
        encoding["strokeDash"] = _by_level(levels, DASHES)
        encoding["shape"] = _by_level(levels, SHAPES)
    encoding["color"] = _by_level(levels, PALETTE) if levels else {"value": PALETTE[0]}
    window = window_of(len({row["update"] for row in values}))
    values = with_means(values, field, window) if window > 1 else values
    if band and window > 1:  # else the legend shows the band's discs
        encoding["color"]["legend"] = {"symbolType": "stroke"}
    layers = lines_of(encoding, window > 1)
    if band:
        limits = {"x": UPDATES, "y": {**y, "field": band[0]}, "y2": {"field": band[1]}}
        limits["color"] = encoding["color"]
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": limits})
    spec = {"width": "container", "height": CHART_HEIGHT, "data": {"values": values}, "layer": layers}
    return {"id": name, "title": title, "note": f"{note}{smoothing_note(window)}", "spec": spec}


def smoothing_note(window: int) -> str:
    """The legend of a smoothed chart's two lines; "" without smoothing."""
    return "" if window == 1 else f" Bold: mean of the last {window} updates; faint: each update."


def lines_of(encoding: dict[str, Any], smoothed: bool) -> list[dict[str, Any]]:
    """The layers of lines with this encoding: as measured, or the smoothed one in front of it."""
    if not smoothed:
        return [{"mark": {"type": "line", "point": {"size": 22}}, "encoding": encoding}]
    behind = {channel: encoding[channel] for channel in ("x", "y", "color")}
    front = {**{name: value for name, value in encoding.items() if name != "shape"}}
    front["y"] = {**encoding["y"], "field": "smooth"}
    return [
        {"mark": {"type": "line", "opacity": 0.3, "strokeWidth": 1}, "encoding": behind},
        {"mark": {"type": "line", "strokeWidth": 2.2}, "encoding": front},
    ]


def _by_level(levels: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
    chosen = [values[-1 if level == "episode" else int(level) % (len(values) - 1)] for level in levels]
    return {"field": "level", "type": "nominal", "title": "level", "scale": {"domain": levels, "range": chosen}}


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
