"""The charts of the overview as Vega-Lite specifications, and the rows they draw."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from hgpo.estimators.diagnostics import SHARES
from hgpo.report.report import Report
from hgpo.utils.files import whole_file
from hgpo.utils.plot_style import DASHES, PALETTE

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
VEGA_MISSING = 'the report draws with Vega, from vl-convert-python: pip install "hgpo[report]"'
_HEIGHT = 150
_FILE_WIDTH = 400
_CHARTS = (
    ("success", "Success", "Share of trajectories that won.", "success"),
    ("reward", "Reward", "Mean sum of rewards of a trajectory, undiscounted.", "reward"),
    ("return", "Return at the start", "Mean discounted return of first steps.", "first_return"),
    ("length", "Length", "Mean steps of a trajectory.", "length"),
    ("usable", "Usable group", "Share of steps for which the level is used.", "usable_share"),
    ("sizes", "Group size", "Members of a step's group: median over steps; band: 10 to 90 %.", "size_p50"),
    (
        "variance",
        "Variance explained, adjusted",
        "Beyond what so many groups explain by chance.",
        "variance_explained_adjusted",
    ),
    ("agreement", "Sign as previous", "Steps whose level and the one before it have the same sign.", "sign_agreement"),
    (
        "weight",
        "Mean weight",
        "Mean over all steps of the level's weight where it is used, 0 elsewhere.",
        "mean_weight",
    ),
)
"""Id, title, note and field of each chart, in reading order; a field of `LevelSummary` has a line per level."""
_BANDS = {"size_p50": ("size_p10", "size_p90")}
"""Field -> the limits of the band around its lines."""

_OF_METRICS = {"success": "success", "reward": "reward", "length": "episode_length"}
"""Field of a chart -> key of metrics.jsonl."""

Rows = list[dict[str, Any]]


def overview_rows(report: Report) -> Rows:
    """One row per update: success, reward, discounted return, length.

    If the run wrote metrics, success, reward and length come from them, also for updates whose steps were not stored.
    """
    rows: dict[int, dict[str, Any]] = {}
    for metrics in report.training.metrics:
        found = {name: metrics.get(key) for name, key in _OF_METRICS.items()}
        rows[metrics["update"]] = {name: one for name, one in found.items() if one is not None and isfinite(one)}
    for measured in report.updates:
        computed = {"success": measured.success, "reward": measured.reward, "length": measured.length}
        known = rows.get(measured.update, {})
        rows[measured.update] = {**computed, **known, "first_return": measured.first_return}
    return [{"update": update, **row} for update, row in sorted(rows.items())]


def level_rows(report: Report) -> Rows:
    """One row per update and level, episode level included, with the fields of `LevelSummary`."""
    return [
        {"update": measured.update, "level": level.label, **asdict(level)}
        for measured in report.updates
        for level in measured.summary.terms
    ]


def level_names(report: Report) -> dict[str, str]:
    """What each level compares, by its label, in the order of `level_rows`."""
    return {level.label: level.name for measured in report.updates for level in measured.summary.terms}


def overview_charts(report: Report) -> list[dict[str, Any]]:
    """Charts in reading order: {"id", "title", "note", "spec"}; a chart without any value is left out."""
    updates, levels = overview_rows(report), level_rows(report)
    axis = {"tickMinStep": 1} if report.unit else {"labels": False, "ticks": False}
    x = {"field": "update", "type": "quantitative", "title": report.unit or None, "axis": axis}
    charts = []
    for name, title, note, field in _CHARTS:
        rows = [row for row in (*updates, *levels) if row.get(field) is not None]
        if rows:
            window = window_of(len({row["update"] for row in rows}))
            if window > 1:
                note += f" Bold: mean of the last {window} {report.unit}s; faint: each {report.unit}."
            charts.append({"id": name, "title": title, "note": note, "spec": _lines(rows, field, x, window)})
    return charts


def window_of(updates: int) -> int:
    """The number of updates in a smoothed point: an eighth of all, from 3 to 10; 1 (not smoothed) for fewer than 12."""
    return 1 if updates < 12 else min(10, max(3, updates // 8))


def _lines(rows: Rows, field: str, x: dict[str, Any], window: int) -> dict[str, Any]:
    """A line per level (or one line) over updates; with a window, a smoothed line in front of the measured one."""
    band = _BANDS.get(field, ())
    kept = {"update", "level", field, *band}
    values = [{key: value for key, value in row.items() if key in kept} for row in rows]
    axis = {"format": "~%"} if field == "success" or field in SHARES else {}
    zero = field != "reward" or len({row[field] for row in rows}) == 1  # the only tick of an empty range is labelled 0
    y = {"field": field, "type": "quantitative", "title": None, "axis": axis, "scale": {"zero": zero}}
    levels = list(dict.fromkeys(row["level"] for row in values if "level" in row))
    color: dict[str, Any] = _by_level(levels, PALETTE) if levels else {"value": PALETTE[0]}
    styles = {"strokeDash": _by_level(levels, DASHES), "shape": _by_level(levels, SHAPES)} if levels else {}
    if window == 1:
        mark = {"type": "line", "point": {"size": 22}}
        layers: Rows = [{"mark": mark, "encoding": {"x": x, "y": y, "color": color, **styles}}]
        if band:  # else the legend is as faint as the band
            color["legend"] = {"symbolOpacity": 1}
    else:
        styles.pop("shape", None)
        if band:  # else the legend shows the band's discs
            color["legend"] = {"symbolType": "stroke"}
        front = {"x": x, "y": {**y, "field": "smooth"}, "color": color, **styles}
        layers = [
            {"mark": {"type": "line", "opacity": 0.3, "strokeWidth": 1}, "encoding": {"x": x, "y": y, "color": color}},
            {"mark": {"type": "line", "strokeWidth": 2.2}, "transform": [_mean(field, window)], "encoding": front},
        ]
    if band:
        limits = {"x": x, "y": {**y, "field": band[0]}, "y2": {"field": band[1]}, "color": color}
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": limits})
    return {"width": "container", "height": _HEIGHT, "data": {"values": values}, "layer": layers}


def _mean(field: str, window: int) -> dict[str, Any]:
    """Vega's transform that adds `smooth`: the mean of the last `window` values (fewer at first) of each level."""
    made = {"op": "mean", "field": field, "as": "smooth"}
    return {"window": [made], "frame": [1 - window, 0], "sort": [{"field": "update"}], "groupby": ["level"]}


def _by_level(levels: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
    chosen = [values[-1 if level == "episode" else int(level) % (len(values) - 1)] for level in levels]
    return {"field": "level", "type": "nominal", "title": "level", "scale": {"domain": levels, "range": chosen}}


def write_charts(report: Report, folder: Path) -> list[Path]:
    """Write one PDF and one PNG per chart that has values; returns their paths.

    Raises:
        ValueError: vl-convert is not installed.
    """
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise ValueError(VEGA_MISSING) from error
    written = []
    for chart in overview_charts(report):
        spec = {**chart["spec"], "width": _FILE_WIDTH, "title": {"text": chart["title"], "subtitle": chart["note"]}}
        images = {".pdf": vl_convert.vegalite_to_pdf(spec), ".png": vl_convert.vegalite_to_png(spec, scale=2)}
        for suffix, image in images.items():
            path = folder / f"{chart['id']}{suffix}"
            with whole_file(path) as partial:
                partial.write_bytes(image)
            written.append(path)
    return written
