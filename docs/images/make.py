"""Make the screenshots of docs/inspect.md and the README from a report of the quickstart's run.

    hgpo inspect runs/quickstart -o report.html
    python docs/images/make.py report.html docs/images

Needs Chromium (Debian: apt-get install chromium) and playwright (in the extra `dev`). A run of another machine may
differ in its last digits and then in its games; name the step to show with --step LINK, LINK as in the address bar.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

TASK = "21/3/train/6963-pick_heat_then_place_in_recep-Bread-None-SideTable-kitchen03"
STEP = f"#step=21/{TASK.replace('/', '%2F')}%233/6"
SIZE = {"width": 1100, "height": 780}
LARGEST = 200_000


def main() -> None:
    """Open every view and keep what it shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--step", default=STEP, help="link of the step to show")
    arguments = parser.parse_args()
    browser = os.environ.get("HGPO_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    make(arguments.report, arguments.folder, arguments.step, browser)


def make(report: Path, folder: Path, step: str, browser: str | None) -> list[Path]:
    """Write the screenshots; a step that the report does not show is a ValueError."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport=SIZE)
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("#chart-weight svg")
        made = [_shot(page, folder / "inspect-overview.png")]
        _open(page, step, "step")
        if page.locator("#fact-return").count() == 0:
            raise ValueError(f"{report} does not show {step}: {page.inner_text('#main h1')}")
        page.wait_for_selector("#chart-waterfall svg")
        made.append(_shot(page, folder / "inspect-step.png"))
        _scroll_to(page, "h2")
        made.append(_shot(page, folder / "inspect-levels.png"))
        page.keyboard.press("2")
        page.wait_for_selector("svg.graph")
        made.append(_shot(page, folder / "inspect-task.png"))
        for view in ("compare", "consistency"):
            _open(page, f"#{view}", view)
            made.append(_shot(page, folder / f"inspect-{view}.png"))
        opened.close()
    return made


def _open(page: Any, link: str, view: str) -> None:
    page.evaluate("link => { location.hash = link }", link)
    page.wait_for_selector(f"#main[data-view={view}]")


def _scroll_to(page: Any, selector: str) -> None:
    """Bring an element to the top, below the bar that stays there."""
    page.eval_on_selector(selector, "element => window.scrollTo(0, element.offsetTop - 60)")


def _shot(page: Any, path: Path) -> Path:
    page.wait_for_timeout(400)
    page.screenshot(path=path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; make the window smaller")
    return path


if __name__ == "__main__":
    main()
