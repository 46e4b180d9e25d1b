from dataclasses import replace

import numpy as np
import pytest

from hgpo import compute_advantages
from hgpo.report.charts import (
    level_names,
    level_rows,
    overview_charts,
    overview_rows,
    window_of,
    write_charts,
)
from hgpo.report.estimator_comparison import Training, level_estimator
from hgpo.report.report import build_report
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch

PAPER = {
    "0": "same state",
    "1": "same state and 1 step of history",
    "2": "same state and 2 steps of history",
}


def test_rows_are_the_figures_of_the_updates(folder):
    report = build_report(folder)
    assert [row["success"] for row in overview_rows(report)] == [0.6, 0.6]
    rows = level_rows(report)
    assert [(row["update"], row["level"]) for row in rows] == [(u, k) for u in (1, 2) for k in "012"]
    summary = report.updates[0].summary
    assert [row["usable_share"] for row in rows[:3]] == [level.usable_share for level in summary.levels]
    assert [row["mean_weight"] for row in rows[:3]] == [level.mean_weight for level in summary.levels]
    agreement = summary.levels[1].sign_agreement
    assert rows[1]["sign_agreement"] == agreement


def test_metrics_know_updates_whose_steps_were_not_stored(folder):
    metrics = ({"update": 3, "success": 0.25, "reward": 1.0, "episode_length": 4.0}, {"update": 1, "success": 0.5})
    rows = overview_rows(build_report(folder, Training(metrics=metrics)))
    assert [row["update"] for row in rows] == [1, 2, 3]
    assert [row["success"] for row in rows] == [0.5, 0.6, 0.25]
    assert rows[0]["length"] == 2.2
    assert "first_return" not in rows[2]


def test_values_keep_the_order_of_their_rows(folder):
    """Two runs of the command write the same bytes: no order is that of a set of texts, which Python draws anew."""
    for chart in overview_charts(build_report(folder)):
        for value in chart["spec"]["data"]["values"]:
            known = [
                key for key in ("update", "level", "usable_share", "mean_weight", "sign_agreement") if key in value
            ]
            assert list(value)[: len(known)] == known, chart["id"]


def test_one_reward_has_an_axis_from_zero(folder):
    """If a range is empty, Vega labels its only tick 0, whatever the value is."""

    def from_zero(*rewards):
        metrics = tuple({"update": 1 + place, "reward": reward} for place, reward in enumerate(rewards))
        charts = overview_charts(build_report(folder, Training(metrics=metrics)))
        [reward] = [chart["spec"]["layer"][0]["encoding"]["y"] for chart in charts if chart["id"] == "reward"]
        return reward["scale"]["zero"]

    assert from_zero(0.4, 0.4)
    assert not from_zero(0.4, 0.5)


def test_every_chart_has_values_and_every_level_its_colour_dash_and_shape(folder):
    charts = {chart["id"]: chart["spec"] for chart in overview_charts(build_report(folder))}
    assert {"success", "length", "usable", "sizes", "weight"} <= charts.keys()
    for spec in charts.values():
        assert spec["data"]["values"]
    encoding = charts["usable"]["layer"][-1]["encoding"]
    for channel in ("color", "strokeDash", "shape"):
        assert len(set(map(str, encoding[channel]["scale"]["range"]))) == 3


@pytest.mark.parametrize(
    ("estimator", "followed", "names"),
    [
        ("gigpo", "gigpo", {"episode": "whole trajectories of the task", "0": "same state"}),
        ("g2po", "trained", {"episode": "whole trajectories of the task", "0": "same node", "1": "whole task"}),
        ("grpo", "paper", {"episode": "whole trajectories of the task (GRPO)", **PAPER}),
        ("reinforce", "paper", PAPER),
        ("gae", "paper", PAPER),  # the steps have no column `value`, so it cannot even be computed
    ],
)
def test_the_levels_are_those_of_the_estimator_that_trained_or_the_papers(folder, estimator, followed, names):
    report = build_report(folder, Training(estimator))
    assert level_estimator(report.estimators).key == followed
    assert level_names(report) == names
    assert {row["level"] for row in level_rows(report)} == names.keys()


def test_the_episode_level_beside_the_papers_levels_is_that_of_the_estimator_that_trained(folder):
    grpo, paper = build_report(folder, Training("grpo")), build_report(folder)
    for figures, expected in zip(grpo.updates, paper.updates, strict=True):
        advantages = compute_advantages(read_batch(find_step_files(folder)[figures.update - 1]).batch, "grpo")
        assert figures.summary.episode.usable_share == np.mean(advantages.episode.used)
        assert figures.summary.levels == expected.summary.levels


def test_a_curve_of_many_updates_is_smoothed_and_stays_in_front_of_what_was_measured(folder):
    assert [window_of(updates) for updates in (1, 11, 12, 40, 70, 500)] == [1, 1, 3, 5, 8, 10]
    metrics = tuple({"update": update, "success": update % 2 / 2} for update in range(1, 41))
    report = build_report(folder, Training(metrics=metrics))
    chart = next(c for c in overview_charts(report) if c["id"] == "success")
    assert "mean of the last 5 updates; faint: each update" in chart["note"]
    assert "mean of the last 5 files; faint: each file" in overview_charts(replace(report, unit="file"))[0]["note"]
    behind, front = chart["spec"]["layer"]
    assert (behind["encoding"]["y"]["field"], front["encoding"]["y"]["field"]) == ("success", "smooth")
    assert behind["mark"]["opacity"] < 0.5
    [transform] = front["transform"]
    assert transform["window"] == [{"op": "mean", "field": "success", "as": "smooth"}]
    assert (transform["frame"], transform["groupby"]) == ([-4, 0], ["level"])


@pytest.mark.slow
def test_every_chart_is_a_pdf_and_a_png(folder, tmp_path):
    pytest.importorskip("vl_convert", reason='vl-convert is missing: pip install "hgpo[report]"')
    report = build_report(folder)
    paths = write_charts(report, tmp_path / "out")
    names = {f"{chart['id']}{suffix}" for chart in overview_charts(report) for suffix in (".pdf", ".png")}
    assert {path.name for path in paths} == names
    assert all((path.read_bytes()[:4] in (b"%PDF", b"\x89PNG")) for path in paths)
    before = (tmp_path / "out" / "success.png").read_bytes()
    write_charts(report, tmp_path / "out")
    assert (tmp_path / "out" / "success.png").read_bytes() == before
