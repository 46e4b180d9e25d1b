"""The pages that tools/ write are current: settings and metrics from the code, results from the stored figures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@pytest.mark.parametrize("tool", ["reference_pages.py", "results_pages.py"])
def test_the_pages_are_current(tool: str) -> None:
    for path, text in runpy.run_path(str(TOOLS / tool))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not current: python tools/{tool}"
