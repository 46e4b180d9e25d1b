import pytest

pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')

from hgpo.report.figures import write_figures
from hgpo.report.report import build_report


@pytest.mark.slow
def test_every_chart_is_a_pdf_and_a_png(folder, tmp_path):
    paths = write_figures(build_report(folder), tmp_path / "out")
    names = {path.name for path in paths}
    assert {"success.pdf", "success.png", "usable.pdf", "sizes.png", "weight.pdf"} <= names
    assert all((path.read_bytes()[:4] in (b"%PDF", b"\x89PNG")) for path in paths)
    before = (tmp_path / "out" / "success.pdf").read_bytes()
    write_figures(build_report(folder), tmp_path / "out")
    assert (tmp_path / "out" / "success.pdf").read_bytes() == before
