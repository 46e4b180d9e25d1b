"""Shared fixtures: small real parts, made by the project itself."""

from __future__ import annotations

import gc
import json
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from browsers import find_chromium, import_playwright
from corridor import Corridor, CorridorSuite

# One thread for each process of `pytest -n`: the tensors of tests are tiny, and threads that wait for a core cost time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Keys that sign runs are drawn for the tests, and not in the home of whoever runs them.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="hgpo-tests-")

QUICK_EXAMPLES = 10
"""Of each property in `make test`; `make test-slow` checks every property again, with Hypothesis' own 100 examples."""


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


def pytest_configure(config: pytest.Config) -> None:
    """Examples have no deadline: a slow example on a busy machine is not a fault."""
    settings.register_profile("complete", deadline=None)
    settings.register_profile("quick", deadline=None, max_examples=QUICK_EXAMPLES)
    settings.load_profile("quick" if config.getoption("markexpr") == "not slow" else "complete")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser that does not answer in time is asked once more: on a busy machine one loses a key now and again."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["TimeoutError"]))


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections, which take 0.3 s each otherwise."""
    gc.collect()
    gc.freeze()
    _let_torch_loggers_propagate()


def _let_torch_loggers_propagate() -> None:
    """Save a millisecond per test: pytest adds its handlers to each logger that does not propagate, PyTorch's fifty."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.startswith("torch."):
            logger.propagate = True


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser that browser tests drive."""
    return find_chromium()


@pytest.fixture(scope="session")
def playwright_api() -> Any:
    """What drives a browser."""
    return import_playwright()


@pytest.fixture(scope="module")
def browser(chromium: str, playwright_api: Any) -> Iterator[Any]:
    """A running headless browser."""
    with playwright_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
