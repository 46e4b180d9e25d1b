import os
import re

import pytest

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
    with pytest.raises(ValueError, match="even with 1 tasks; the limit is 1,000"):
        fitting_page(report.thinned(0.2), limit=1_000)
