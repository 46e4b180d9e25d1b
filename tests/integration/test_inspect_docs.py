"""The page about the inspector: its pictures are there, small enough, and made by the script it names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from house import write_rows

ROOT = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_screenshots", ROOT / "docs/images/make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_of_the_page_is_there_and_small() -> None:
    shown = re.findall(r"!\[[^]]+\]\((images/[^)]+)\)", (ROOT / "docs/inspect.md").read_text(encoding="utf-8"))
    assert len(shown) >= 4
    for name in shown:
        assert 0 < (ROOT / "docs" / name).stat().st_size <= script().LARGEST


@pytest.mark.slow
@pytest.mark.usefixtures("playwright_api")
def test_the_script_makes_the_pictures(tmp_path: Path, chromium: str) -> None:
    from hgpo.report.rendering import fitting_page
    from hgpo.report.report import build_report

    rows = [
        {
            "group": "g",
            "trajectory": name,
            "step": step,
            "observation": room,
            "prompt": room,
            "action": "go",
            "reward": won,
        }
        for name, won in (("a", 1.0), ("b", 0.0))
        for step, room in enumerate(["hall", "attic"])
    ]
    path = tmp_path / "1.jsonl"
    write_rows(path, rows)
    page, _ = fitting_page(build_report(path))
    report = tmp_path / "report.html"
    report.write_text(page, encoding="utf-8")
    made = script().make(report, tmp_path, "#step=1/a/1", chromium)
    assert len(made) == 6
    assert all(image.read_bytes().startswith(b"\x89PNG") for image in made)
    with pytest.raises(ValueError, match="does not show #step=1/c/0"):
        script().make(report, tmp_path, "#step=1/c/0", chromium)
