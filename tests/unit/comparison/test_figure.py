"""The picture: what is in it, that it is the same each time, and that names are drawn as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')

from compared import entry
from hgpo.comparison.curves import Curve
from hgpo.comparison.figure import check_figure, draw_comparison, legend
from hgpo.comparison.table import compare
from hgpo.drawing import PALETTE

ONE = Curve("_grpo$", (1,), 1, (1, 2), (0.1, 0.2), (0.1, 0.2), (0.1, 0.2))
TWO = Curve("hgpo", (0, 2), 2, (1, 2), (0.3, 0.4), (0.2, 0.3), (0.4, 0.5))
ENTRIES = [entry(label, {"walk": [1] * 8 + [0] * 2}) for label in ("a", r"_<b>$\frac{$", "c", "d")]


def drawn(path: Path, curves: list[Curve], smooth: int = 1) -> str:
    draw_comparison(compare(ENTRIES), curves, smooth, path)
    return path.read_text(encoding="utf-8")


def texts(svg: str) -> list[str]:
    """matplotlib draws letters as paths and says in a comment which text they are."""
    return re.findall(r"<!-- (.*?) -->", svg)


def test_names_and_legend_are_drawn_as_they_are(tmp_path: Path) -> None:
    svg = drawn(tmp_path / "figure.svg", [TWO, ONE], smooth=5)
    found = texts(svg)
    assert {"a", "c", "d", "success, % (95 % interval)", "update", "Training, mean of the last 5 updates"} <= {*found}
    assert {"hgpo: mean of 2 seeds, band min to max", "_grpo$"} <= {*found}
    assert any("frac" in text for text in found)
    assert {colour.lower() for colour in PALETTE[:3]} <= {*re.findall(r"#[0-9a-f]{6}", svg)}


def test_without_runs_there_is_the_left_side_alone(tmp_path: Path) -> None:
    found = texts(drawn(tmp_path / "figure.svg", []))
    assert "Evaluation" in found
    assert not any("Training" in text or "update" in text for text in found)


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".PNG"])
def test_it_is_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        draw_comparison(compare(ENTRIES), [TWO, ONE], 1, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_more_entries_than_colours_can_be_drawn(tmp_path: Path) -> None:
    many = [entry(str(number), {"walk": [1, 0]}) for number in range(14)]
    curves = [Curve(str(number), (number,), 1, (1, 2), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)) for number in range(13)]
    draw_comparison(compare(many), curves, 1, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_legend_says_what_the_band_is() -> None:
    assert (legend(ONE), legend(TWO)) == ("_grpo$", "hgpo: mean of 2 seeds, band min to max")


def test_another_format_or_a_folder_is_refused(tmp_path: Path) -> None:
    check_figure(tmp_path / "x.Svg")
    with pytest.raises(ValueError, match=r"the name of a figure ends in \.pdf, \.png, \.svg"):
        check_figure(tmp_path / "x.jpg")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        check_figure(tmp_path / "folder.png")
