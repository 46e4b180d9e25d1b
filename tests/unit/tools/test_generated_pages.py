"""The pages that tools/ write are current: settings and metrics from the code, results from the stored figures."""

from __future__ import annotations

from types import ModuleType

import pytest

import reference_pages
import results_pages


@pytest.mark.parametrize("tool", [reference_pages, results_pages])
def test_the_pages_are_current(tool: ModuleType) -> None:
    for path, text in tool.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not current: python tools/{tool.__name__}.py"
