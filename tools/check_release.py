"""Checks whether a tag may become a release: `python tools/check_release.py v0.2.0`. Uses only the standard library.

A release is one tag. Its name is "v" and the version of pyproject.toml, CITATION.cff names the same version, and
CHANGELOG.md has a dated section for it with at least one entry. Exit status 1 if one of these does not hold.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str, root: Path = ROOT) -> Iterator[str]:
    """The reasons against the release, one sentence each."""
    version = tomllib.loads(_text(root, "pyproject.toml"))["project"]["version"]
    if tag != f"v{version}":
        yield f"the tag is {tag!r} and pyproject.toml has version {version!r}: tag v{version}, or change the version"
    cited = re.search(r"^version: \"?([^\s\"]+)\"?$", _text(root, "CITATION.cff"), re.MULTILINE)
    if cited is None or cited[1] != version:
        yield f"CITATION.cff has version {cited[1] if cited else None!r}, not {version!r}"
    yield from _changelog_problems(_text(root, "CHANGELOG.md"), version)


def _changelog_problems(changelog: str, version: str) -> Iterator[str]:
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = [section for section in sections if re.match(rf"\[?{re.escape(version)}\]?(\s|$)", section)]
    if not found:
        yield f'CHANGELOG.md has no section "## {version} - YYYY-MM-DD": rename "Unreleased"'
        return
    title, _, body = found[0].partition("\n")
    if not re.search(r"\d{4}-\d{2}-\d{2}\s*$", title):
        yield f'CHANGELOG.md: the section "## {title.strip()}" does not end with its date, YYYY-MM-DD'
    if not re.search(r"^- \S", body, re.MULTILINE):
        yield f'CHANGELOG.md: the section "## {title.strip()}" has no entry'


def _text(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print the problems and return the exit status."""
    if len(arguments) != 1:
        print("usage: python tools/check_release.py TAG", file=sys.stderr)
        return 2
    found = list(problems(arguments[0]))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
