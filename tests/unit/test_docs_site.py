"""What turns docs/ into a site, apart from MkDocs: links, notebooks, pictures. `make docs` builds it strictly."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path

import pytest

import docs_site as site

ROOT = Path(__file__).parents[2]


def test_the_examples_of_the_hooks() -> None:
    result = doctest.testmod(site)
    assert result.attempted >= 3
    assert result.failed == 0


@pytest.mark.parametrize(
    ("page", "link", "leads_to"),
    [
        ("webshop.md", "../recipes/webshop-tiny/README.md", "repository/recipes/webshop-tiny/README.md"),
        ("evaluation.md", "../src/hgpo/grouping.py", "repository/src/hgpo/grouping.py.md"),
        ("choosing.md", "../recipes/quickstart/README.md#estimators-compared", None),
        ("architecture.md", "decisions/", "decisions/README.md"),
        ("algorithms/g2po.md", "../log.md", "../log.md"),
        ("repository/recipes/README.md", "../docs/inspect.md", "../../inspect.md"),
        ("quickstart.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("quickstart.md", "../../elsewhere.md", "../../elsewhere.md"),
    ],
)
def test_links_lead_to_the_sites_pages(page: str, link: str, leads_to: str | None) -> None:
    expected = leads_to or "repository/recipes/quickstart/README.md#estimators-compared"
    assert site.with_links(page, f"see [it]({link}).") == f"see [it]({expected})."


def test_links_in_code_stay_as_they_are() -> None:
    link = "[it](../src/hgpo/grouping.py)"
    for code in (f"`{link}`", f"```text\n{link}\n```", f"Words:\n\n    {link}\n\nmore"):
        assert site.with_links("inspect.md", code) == code
        assert list(site.linked("inspect.md", code)) == []
    assert link not in site.with_links("inspect.md", f"`code` {link}")


def test_every_file_that_pages_link_to_can_be_shown() -> None:
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    targets = {target for page in pages for target in site.linked(page, (ROOT / "docs" / page).read_text("utf-8"))}
    assert "repository/examples/trl_steps.py.md" in targets
    for target in targets:
        path = ROOT / site.repository_path(target)
        assert path.exists(), target
        if path.suffix not in {".png", ".svg"}:
            assert "# " in site.as_markdown(path)[:200], target


def test_a_file_that_is_not_text_is_named_with_its_size() -> None:
    weights = ROOT / "benchmarks" / "starts" / "alfworld-tiny" / "model.safetensors"
    page = site.as_markdown(weights)
    assert page.startswith("# benchmarks/starts/alfworld-tiny/model.safetensors\n")
    assert f"{weights.stat().st_size:,} bytes" in page


def test_what_is_fetched_from_elsewhere_is_found() -> None:
    fetched = '<script src="https://cdn.example/a.js">', '<link rel="stylesheet" href="//fonts.example/b.css">'
    assert [bool(site._FETCHED.search(tag)) for tag in fetched] == [True, True]
    assert not site._FETCHED.search('<a href="https://example.org/">x</a> <script src="assets/a.js">')


def test_the_navigation_names_what_there_is_and_every_page_once() -> None:
    text = re.sub(r"!!python/object/apply:\S+", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    named = re.findall(r"[\w/*-]+\.md|[\w/.-]+\.ipynb\.md", text.split("\nnav:\n")[1])
    for name in named:
        found = list((ROOT / "docs").glob(name)) if "*" in name else [ROOT / site.repository_path(name)]
        assert found, name
        assert all(path.exists() for path in found), name
    listed = {path for name in named for path in (ROOT / "docs").glob(name)}
    outside = {ROOT / "docs" / "log.md", *(ROOT / "docs" / "decisions").glob("*.md")}
    assert not listed & outside
    missing = set((ROOT / "docs").glob("**/*.md")) - listed - outside
    assert not missing, f"add them to mkdocs.yml: {sorted(path.name for path in missing)}"


def test_the_pictures_of_the_concepts_are_those_of_the_script() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "concepts.py"))["pictures"]()
    page = (ROOT / "docs/concepts.md").read_text("utf-8")
    for name, picture in drawn.items():
        assert (ROOT / "docs/images" / name).read_text("utf-8") == picture, "python docs/images/concepts.py docs/images"
        assert f"(images/{name})" in page


def test_the_numbers_of_the_concepts() -> None:
    result = doctest.testfile(str(ROOT / "docs/concepts.md"), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
