"""A tag that may become a release, and those that may not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import check_release

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "hgpo"\nversion = "0.2.0"\n')
    (tmp_path / "CITATION.cff").write_text('cff-version: 1.2.0\nversion: "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-11-23\n\n### Added\n- A thing.\n\n"
        "## 0.1.0 - 2026-01-01\n- One.\n"
    )
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_tag_that_fits(project: Path) -> None:
    assert list(check_release.problems("v0.2.0", project)) == []


@pytest.mark.parametrize("tag", ["0.2.0", "v0.2.1", "v0.2.0rc1", ""])
def test_a_tag_of_another_version(tag: str, project: Path) -> None:
    [problem] = check_release.problems(tag, project)
    assert "tag v0.2.0, or change the version" in problem


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("CITATION.cff", '"0.2.0"', '"0.1.0"', "CITATION.cff has version '0.1.0', not '0.2.0'"),
        ("CHANGELOG.md", "## 0.2.0 - 2026-11-23", "## 0.20.0 - 2026-11-23", 'no section "## 0.2.0 - YYYY-MM-DD"'),
        ("CHANGELOG.md", "0.2.0 - 2026-11-23", "0.2.0", "does not end with its date"),
        ("CHANGELOG.md", "- A thing.", "", "has no entry"),
    ],
)
def test_what_else_stands_against_it(name: str, old: str, new: str, problem: str, project: Path) -> None:
    edit(project / name, old, new)
    [found] = check_release.problems("v0.2.0", project)
    assert problem in found


def test_the_projects_own_files_agree_about_the_version() -> None:
    """All but the changelog, whose section comes with the release."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert [problem for problem in check_release.problems(f"v{version[1]}") if "CHANGELOG" not in problem] == []


def test_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_release.main(["v999"]) == 1
    assert "the tag is 'v999'" in capsys.readouterr().err
    assert check_release.main([]) == 2
