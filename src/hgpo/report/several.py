"""Several runs on one page: success on held-out tasks, curves over one another, settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hgpo.drawing import DASHES, PALETTE
from hgpo.report.charts import (
    CHART_HEIGHT,
    PERCENT,
    UPDATES,
    Rows,
    is_number,
    lines_of,
    smoothing_note,
    window_of,
    with_means,
)
from hgpo.report.payload import Columns, pack
from hgpo.report.rendering import page_of
from hgpo.report.run_facts import RunFacts

MOST_RUNS = len(PALETTE)
"""As many as there are colours that people can tell apart."""
_CHARTS = (
    ("success", "Success", "Share of the trajectories played in training that won.", True),
    ("reward", "Reward", "Mean sum of rewards of a trajectory, undiscounted.", False),
    ("episode_length", "Length", "Mean steps of a trajectory.", False),
    ("entropy", "Entropy", "Of the policy, per token: how undecided it is.", False),
    ("kl", "Divergence from the start policy", "KL, per token.", False),
    ("gradient_norm", "Gradient norm", "Before clipping.", False),
)


def render_runs(runs: Sequence[RunFacts]) -> str:
    """The page that sets runs side by side; their labels are told apart where they are alike.

    Raises:
        ValueError: fewer than two runs, or more than there are colours.
    """
    if not 2 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"{len(runs)} runs: 2 to {MOST_RUNS} can be set side by side")
    labels = told_apart([run.label for run in runs])
    header: dict[str, Any] = {
        "runs": [{**run.as_header(), "label": label} for run, label in zip(runs, labels, strict=True)],
        "differing": differing_settings(runs),
        "charts": run_charts(runs, labels),
    }
    return page_of(" · ".join(labels), pack(header, Columns()))


def told_apart(labels: Sequence[str]) -> list[str]:
    """Labels with a number behind those that occur again. Example: `["a", "a"]` become `["a", "a (2)"]`."""
    made: list[str] = []
    for label in labels:
        numbered = (label, *(f"{label} ({number})" for number in range(2, len(labels) + 1)))
        made.append(next(name for name in numbered if name not in made))
    return made


def differing_settings(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Settings that not all runs have alike: name, meaning and one value for each run, None where it has none."""
    values = [{setting.name: setting.value for setting in run.settings} for run in runs]
    meanings = {setting.name: setting.meaning for run in runs for setting in run.settings}
    rows = [(name, [each.get(name) for each in values]) for name in meanings]
    return [{"name": name, "meaning": meanings[name], "values": row} for name, row in rows if len(set(row)) > 1]


def run_charts(runs: Sequence[RunFacts], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One chart a figure, one line a run; a figure that no run has is left out. Held-out success comes first."""
    held_out = [
        {"run": label, "update": point.update, "success": point.success.mean}
        | {"low": point.success.low, "high": point.success.high}
        for run, label in zip(runs, labels, strict=True)
        for point in run.held_out.points
    ]
    made = [_held_out_chart(held_out, labels)] if held_out else []
    for field, title, note, percent in _CHARTS:
        rows = [
            {"run": label, "update": row["update"], field: float(row[field])}
            for run, label in zip(runs, labels, strict=True)
            for row in run.metrics
            if isinstance(row.get("update"), int) and is_number(row.get(field))
        ]
        if rows:
            made.append(_chart(field, title, note, rows, labels, percent))
    return made


def _chart(field: str, title: str, note: str, rows: Rows, labels: Sequence[str], percent: bool) -> dict[str, Any]:
    window = window_of(max(row["update"] for row in rows))
    encoding = _encoding(labels, field, percent)
    values = with_means(rows, field, window, by="run")
    spec = {"width": "container", "height": CHART_HEIGHT, "data": {"values": values}}
    layers = lines_of(encoding, window > 1)
    return {"id": field, "title": title, "note": note + smoothing_note(window), "spec": {**spec, "layer": layers}}


def _held_out_chart(rows: Rows, labels: Sequence[str]) -> dict[str, Any]:
    encoding = _encoding(labels, "success", percent=True)
    band = {channel: encoding[channel] for channel in ("x", "color")}
    band |= {"y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}}
    layers = [{"mark": {"type": "rule", "opacity": 0.6}, "encoding": band}, *lines_of(encoding, smoothed=False)]
    spec = {"width": "container", "height": CHART_HEIGHT, "data": {"values": rows}, "layer": layers}
    note = "Tasks that no update saw; bars are 95 % intervals."
    return {"id": "held-out", "title": "Success on held-out tasks", "note": note, "spec": spec}


def _encoding(labels: Sequence[str], field: str, percent: bool) -> dict[str, Any]:
    def by_run(values: Sequence[Any]) -> dict[str, Any]:
        scale = {"domain": list(labels), "range": list(values[: len(labels)])}
        return {"field": "run", "type": "nominal", "title": None, "scale": scale}

    axis = PERCENT if percent else {}
    y = {"field": field, "type": "quantitative", "title": None, "axis": axis, "scale": {"zero": percent}}
    return {"x": dict(UPDATES), "y": y, "color": by_run(PALETTE), "strokeDash": by_run(DASHES)}
