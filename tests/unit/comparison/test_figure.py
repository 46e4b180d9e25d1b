"""Learning curves: their points and labels, and that the file is the same each time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')

from compared import entry, write_run
from hgpo.report.compare_entries import Entry, read_entries
from hgpo.report.compare_figure import check_figure, draw_curves
from panels import panel


@pytest.fixture
def entries(tmp_path: Path) -> tuple[Entry, ...]:
    """Two runs of one label, and one with a name that matplotlib would read as a formula."""
    after = {"after": panel({"walk": [1, 0]})}
    runs = [write_run(tmp_path / f"hgpo-{n}", after, f"run.seed={n}", success=[0.1 * n, 0.2, 0.4]) for n in (1, 2)]
    other = write_run(tmp_path / "other", after, success=[0.5, 0.5])
    return read_entries([*(f"hgpo={run}" for run in runs), f"_<b>$\\frac{{$={other}"])


def texts(svg: str) -> list[str]:
    """matplotlib draws letters as paths and writes their text in a comment."""
    return re.findall(r"<!-- (.*?) -->", svg)


def test_a_label_is_one_line_and_names_are_drawn_as_they_are(entries: tuple[Entry, ...], tmp_path: Path) -> None:
    draw_curves(entries, 2, tmp_path / "figure.svg")
    found = texts((tmp_path / "figure.svg").read_text(encoding="utf-8"))
    assert {"hgpo: mean of 2 runs, band min to max", "update", "Success in training, mean of the last 2 updates"} <= {
        *found
    }
    assert any("frac" in text for text in found)


def test_a_curve_of_one_update_is_a_point_and_runs_without_metrics_are_counted(tmp_path: Path) -> None:
    after = {"after": panel({"walk": [1, 0]})}
    runs = [write_run(tmp_path / str(n), after, f"run.seed={n}", success=[0.5] * n) for n in (1, 2, 0)]
    draw_curves(read_entries([f"hgpo={run}" for run in runs]), 1, tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "hgpo: mean of 2 runs of 3, band min to max" in texts(drawn)
    (line,) = re.findall(r'<g id="line2d_\d+">(?:(?!</g>).)*#0072b2(?:(?!line2d).)*', drawn, re.DOTALL)[:1]
    assert "<use" in line, "a line of one point has no length"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".PNG"])
def test_it_is_the_same_each_time(entries: tuple[Entry, ...], tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        draw_curves(entries, 1, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_mistakes_are_named(entries: tuple[Entry, ...], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--smooth 0: at least 1 update"):
        draw_curves(entries, 0, tmp_path / "figure.svg")
    with pytest.raises(ValueError, match="no run has metrics"):
        draw_curves([entry("file", {"walk": [1]})], 1, tmp_path / "figure.svg")
    with pytest.raises(ValueError, match=r"must end in \.pdf, \.png, \.svg"):
        check_figure(tmp_path / "figure.jpg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        check_figure(tmp_path / "folder.svg")
