"""The report's step view in a real browser where a level compares similar states.

Needs Chromium (Debian: `apt-get install chromium`) and playwright, which is in the extra `dev`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hgpo.report.estimator_comparison import Training
from hgpo.report.rendering import fitting_page
from hgpo.report.report import build_report
from house import walk, write_rows

pytestmark = pytest.mark.slow


def test_members_are_listed_with_what_matched(browser: Any, tmp_path: Path) -> None:
    """Rooms "room 1" and "room 2" are similar, and neither has an equal one; the hall is equal."""
    rows = [
        *walk(1, "a", "0", ["hall", "room 1"], won=True),
        *walk(1, "a", "1", ["hall", "room 2"], won=False),
        *walk(1, "a", "2", ["hall", "an attic"], won=False),
    ]
    write_rows(tmp_path / "steps" / "00001.jsonl", rows)
    training = Training("hgpo", {"match_threshold": 0.6, "history_length": 1}, gamma=0.5)
    page, _ = fitting_page(build_report(tmp_path / "steps", training))
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")

    view = browser.new_page()
    for step, members in ((0, ["equal states", "equal states"]), (1, ["similarity 0.714: room 2"])):
        view.goto(f"{path.as_uri()}#step=1/{quote('1/a#0', safe='')}/{step}")
        view.reload()
        view.wait_for_selector("#level-0 table.members")
        assert view.inner_text("#level-0 b[data-figure=size]") == str(len(members) + 1)
        assert "similar state (by text, at least 0.6)" in view.inner_text("#level-0 h3")
        matched = view.eval_on_selector_all(
            "#level-0 table.members tbody tr", "all => all.map(r => r.cells[6].innerText)"
        )
        assert [text.strip() for text in matched] == members
    view.close()
