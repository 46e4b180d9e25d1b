"""The charts of the overview as Vega-Lite specifications, and the rows they draw."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

from hgpo.estimators.diagnostics import LevelSummary
from hgpo.report.report import Report
from hgpo.utils.files import whole_file
from hgpo.utils.plot_style import DASHES, PALETTE

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
CHART_HEIGHT = 150
_FILE_WIDTH = 400
VEGA_MISSING = 'the report draws with Vega, from vl-convert-python: pip install "hgpo[report]"'
UPDATES = {"field": "update", "type": "quantitative", "title": "update", "axis": {"tickMinStep": 1}}
"""The horizontal axis of every chart."""
PERCENT = {"format": "~%"}
"""An axis of shares, in per cent without trailing zeros."""

Rows = list[dict[str, Any]]


def overview_rows(report: Report) -> Rows:
    """One row per update: success, reward, discounted return, length.

    If the run wrote metrics, success, reward and length come from them, also for updates whose steps were not stored.
    """
    rows: dict[int, dict[str, Any]] = {}
    for metrics in report.training.metrics if report.training else ():
        if isinstance(update := metrics.get("update"), int):
            names = {"success": "success", "reward": "reward", "length": "episode_length"}
            rows[update] = {name: metrics[key] for name, key in names.items() if is_number(metrics.get(key))}
    for measured in report.updates:
        computed = {"success": measured.success, "reward": measured.reward, "length": measured.length}
        known = rows.get(measured.update, {})
        rows[measured.update] = {**computed, **known, "first_return": measured.first_return}
    return [{"update": update, **row} for update, row in sorted(rows.items())]


def is_number(value: object) -> bool:
    """Whether a value of metrics.jsonl can be drawn."""
    return isinstance(value, (int, float)) and isfinite(value)


def level_rows(report: Report) -> Rows:
    """One row per update and level, episode level included, with the metrics of the charts and tables."""
    return [
        {"update": measured.update, "level": level.label, **_statistics(level)}
        for measured in report.updates
        for level in measured.summary.terms
    ]


def level_names(report: Report) -> dict[str, str]:
    """What each level compares, by its label, in the order of `level_rows`."""
    return {level.label: level.name for measured in report.updates for level in measured.summary.terms}


STATISTICS = {
    "usable": "usable_share",
    "weight": "mean_weight",
    "size_p10": "size_p10",
    "size_p50": "size_p50",
    "size_p90": "size_p90",
    "adjusted": "variance_explained_adjusted",
    "agreement": "sign_agreement",
    "prompts": "prompts_differ_steps",
}
"""Key of `level_rows` -> field of `LevelSummary`."""


def _statistics(level: LevelSummary) -> dict[str, Any]:
    return {name: getattr(level, figure) for name, figure in STATISTICS.items()}


def overview_charts(report: Report) -> list[dict[str, Any]]:
    """Charts in reading order: {"id", "title", "note", "spec"}; a chart without any value is left out."""
    updates, levels = overview_rows(report), level_rows(report)
    charts = [
        _lines("success", "Success", "Share of trajectories that won.", updates, "success", percent=True),
        _lines("reward", "Reward", "Mean sum of rewards of a trajectory, undiscounted.", updates, "reward"),
        _lines("return", "Return at the start", "Mean discounted return of first steps.", updates, "first_return"),
        _lines("length", "Length", "Mean steps of a trajectory.", updates, "length"),
        _lines("usable", "Usable group", "Share of steps for which the level is used.", levels, "usable", percent=True),
        _lines(
            *("sizes", "Group size", "Members of a step's group: median over steps; band: 10 to 90 %."),
            *(levels, "size_p50"),
            band=("size_p10", "size_p90"),
        ),
        _lines(
            *("variance", "Variance explained, adjusted", "Beyond what so many groups explain by chance."),
            *(levels, "adjusted"),
            percent=True,
        ),
        _lines(
            *("agreement", "Sign as previous", "Steps whose level and the one before it have the same sign."),
            *(levels, "agreement"),
            percent=True,
        ),
        _lines(
            *("weight", "Mean weight", "Mean over all steps of the level's weight where it is used, 0 elsewhere."),
            *(levels, "weight"),
        ),
    ]
    found = [chart for chart in charts if chart is not None]
    if report.unit != "update":
        axis = {"title": report.unit or None} | ({} if report.unit else {"axis": {"labels": False, "ticks": False}})
        for chart in found:
            for layer in chart["spec"]["layer"]:
                layer["encoding"]["x"] = {**layer["encoding"]["x"], **axis}
    return found


def window_of(updates: int) -> int:
    """The number of updates in a smoothed point: an eighth of all, from 3 to 10; 1 (not smoothed) for fewer than 12."""
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
    """A line per level (or one line) over updates; for many updates, a smoothed line in front of the measured one."""
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
