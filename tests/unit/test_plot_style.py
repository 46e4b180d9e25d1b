"""Pictures for papers: what is missing is named, and a file is the same each time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hgpo.utils.plot_style import (
    DASHES,
    FIGURE_FORMATS,
    PALETTE,
    check_matplotlib,
    dash,
    empty_figure,
    save_figure,
)


def test_every_colour_has_a_dash_and_a_point_of_its_own() -> None:
    assert len(set(PALETTE)) == len(set(DASHES)) == 6
    assert [dash(number) for number in (0, 1)] == ["solid", (0, (6, 2))]


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    with pytest.raises(ValueError, match=r'figures need matplotlib: pip install "hgpo\[report\]"'):
        check_matplotlib()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FIGURE_FORMATS)
def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')
    resource = pytest.importorskip("resource", reason="this system knows no limits of file sizes")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with empty_figure(2, 1) as figure:
        figure.add_subplot()
        resource.setrlimit(resource.RLIMIT_FSIZE, (900, hard))  # Python ignores the signal, so that the write fails
        try:
            with pytest.raises(OSError, match="File too large"):
                save_figure(figure, tmp_path / "x", suffix)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FIGURE_FORMATS)
def test_a_file_is_the_same_each_time_and_takes_texts_as_they_are(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')
    for name in ("first", "second"):
        with empty_figure(2, 1) as figure:
            figure.add_subplot().set_title(r"_<b>$\frac{$")
            save_figure(figure, tmp_path / name, suffix)
    content = (tmp_path / "first").read_bytes()
    assert content.startswith({".pdf": b"%PDF", ".png": b"\x89PNG", ".svg": b"<?xml"}[suffix])
    assert content == (tmp_path / "second").read_bytes()
