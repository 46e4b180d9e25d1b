"""What the tests share. Those that start a JVM are slow and need Java."""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where there is no Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        pytest.skip("Java is missing: apt-get install default-jre-headless")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
