"""A browser test that cannot run skips at a desk and fails where a browser is required."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest

from browsers import find_chromium, import_playwright


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HGPO_BROWSER", raising=False)
    monkeypatch.delenv("HGPO_REQUIRE_BROWSER", raising=False)
    monkeypatch.setattr(shutil, "which", lambda command: None)
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)


@pytest.mark.parametrize(("find", "remedy"), [(find_chromium, "apt-get install"), (import_playwright, "pip install")])
def test_what_is_missing_is_skipped_or_fails(
    find: Callable[[], Any], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.skip.Exception, match=remedy):
        find()
    monkeypatch.setenv("HGPO_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match=f"HGPO_REQUIRE_BROWSER is set, but .*{remedy}"):
        find()


def test_a_browser_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGPO_BROWSER", "/opt/browser")
    assert find_chromium() == "/opt/browser"
