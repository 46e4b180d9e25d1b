"""What the browser tests need: Chromium (Debian: `apt-get install chromium`) and playwright, of the extra `dev`.

Without them these tests skip. Where HGPO_REQUIRE_BROWSER is set, as in `.ci/run`, they fail instead: a check that can
pass by skipping is none.
"""

from __future__ import annotations

import importlib
import os
import shutil
from typing import Any, NoReturn

import pytest

CHROMIUM_COMMANDS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """The path that HGPO_BROWSER names, or else that of the first Chromium there is."""
    found = os.environ.get("HGPO_BROWSER") or next(filter(None, map(shutil.which, CHROMIUM_COMMANDS)), None)
    return found or _give_up("no Chromium found: apt-get install chromium, or set HGPO_BROWSER to one")


def import_playwright() -> Any:
    """The module `playwright.sync_api`."""
    try:
        return importlib.import_module("playwright.sync_api")
    except ImportError as error:
        _give_up(f'playwright is missing ({error}): pip install "hgpo[dev]"')


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("HGPO_REQUIRE_BROWSER"):
        pytest.fail(f"HGPO_REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(reason)
