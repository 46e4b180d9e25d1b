"""Shared fixtures: small real parts, made by the project itself."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from corridor import Corridor, CorridorSuite

# No deadline: on a busy machine one slow example says nothing about the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture
def corridor_suite() -> CorridorSuite:
    return CorridorSuite()


@pytest.fixture
def corridor() -> Corridor:
    return Corridor(goal=2)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Rollouts in a file: three trajectories of one task, two steps each."""
    rows = [
        {"group": "g", "trajectory": t, "step": s, "observation": f"o{s}", "reward": float(t * s)}
        for t in range(3)
        for s in range(2)
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser that browser tests drive; they skip where there is none."""
    named = os.environ.get("HGPO_BROWSER")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium found: apt-get install chromium, or set HGPO_BROWSER to one")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A running headless browser."""
    api = pytest.importorskip("playwright.sync_api", reason='playwright is missing: pip install "hgpo[dev]"')
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
