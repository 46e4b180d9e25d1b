import os
import re
from dataclasses import replace

import pytest

from hgpo.report import rendering
from hgpo.report.rendering import MARKER, content_security_policy, fitting_page
from hgpo.report.report import build_report
from hgpo.storage.schema import Notice


def test_the_policy_names_digests_and_nothing_broader():
    policy = content_security_policy(("a()", "b()"), "p{}")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert len(re.findall("sha256-", policy)) == 3
    assert not re.search(r"unsafe|\*|https?:|data:|blob:", policy)
    assert "connect-src 'none'" in policy


def test_a_path_that_is_not_valid_utf_8_has_a_report(folder, tmp_path):
    pytest.importorskip("vl_convert", reason='vl-convert-python is missing: pip install "hgpo[report]"')
    path = tmp_path / os.fsdecode(b"\xff")
    path.symlink_to(folder)
    page, _ = fitting_page(build_report(path, notices=[Notice("damaged", path.name)]))
    assert f"<title>{tmp_path}/? · hgpo inspect</title>" in page
    page.encode()


@pytest.mark.slow
def test_a_page_needs_nothing_from_outside(folder):
    pytest.importorskip("vl_convert", reason='vl-convert-python is missing: pip install "hgpo[report]"')
    page, report = fitting_page(build_report(folder))
    assert page.startswith(MARKER)
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b", page.split("<script>")[0])
    assert not re.search(r"<script[^>]+src=", page)
    assert page.lower().count("</script>") == 3
    assert report.sampled_steps == report.steps
    with pytest.raises(ValueError, match="even with 1 task; the limit is 1,000"):
        fitting_page(report.thinned(0.2), limit=1_000)


def test_tasks_are_left_out_until_the_page_fits(folder, monkeypatch):
    """A page that stays too large while it has more than ten tasks, here of one character too much."""
    monkeypatch.setattr(rendering, "page_of", lambda title, data: data)
    monkeypatch.setattr(rendering, "packed_report", lambda report: "x" * (100 + (len(report.samples) > 10)))
    found = build_report(folder)
    many = replace(found, samples=tuple(sorted(found.samples * 25, key=lambda task: task.update)))
    page, report = fitting_page(many, limit=100)
    assert len(page) == 100
    assert 5 < len(report.samples) <= 10
