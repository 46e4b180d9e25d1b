"""The page that a package index shows: no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="the build backend is no package of this environment: pip install 'hgpo[dev]'")

import index_page  # its base class is hatchling's

ROOT = Path(__file__).parents[3]

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://example.org/someone/hgpo"
LINK = re.compile(r"\[[^\]]*\]\(([^)]*)\)")


def test_links_lead_to_the_files_of_the_tag() -> None:
    page = index_page.page_for_index("![a](docs/a.png) [b](docs/b.md#c) [d](https://e.org/) [f](#g)", REPOSITORY, "v1")
    assert page == (
        f"![a]({REPOSITORY}/raw/v1/docs/a.png) [b]({REPOSITORY}/blob/v1/docs/b.md#c) [d](https://e.org/) [f](#g)"
    )


def test_without_a_repository_they_are_text_and_pictures_are_left_out() -> None:
    page = index_page.page_for_index("![a](docs/a.png)x [b](docs/b.md#c) [d](https://e.org/)", "", "v1")
    assert page == "x b [d](https://e.org/)"


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_no_link_of_the_readme_is_relative(repository: str) -> None:
    targets = LINK.findall(index_page.page_for_index(README, repository, "v1"))
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_projects_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert index_page.project_urls("") == {"Paper": index_page.PAPER}
    assert index_page.project_urls(REPOSITORY)["Source"] == REPOSITORY
    monkeypatch.setenv("HGPO_REPOSITORY", f"{REPOSITORY}/")
    metadata = {"version": "1.2.3"}
    index_page.IndexPage(str(ROOT), {"repository": ""}).update(metadata)
    assert metadata["urls"]["Issues"] == f"{REPOSITORY}/issues"
    assert f"{REPOSITORY}/blob/v1.2.3/docs/choosing.md" in metadata["readme"]["text"]
