"""The project's page on a package index: its links, and README.md with links that work there.

hatchling calls this module during a build (`[tool.hatch.metadata.hooks.custom]` in pyproject.toml). The address of the
sources is `repository` there, or the environment variable HGPO_REPOSITORY, which the release workflow sets. Without
either, links into the repository become plain text and its pictures are left out, because an index would resolve them
against its own address.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/2602.22817"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)]*)\)")


class IndexPage(MetadataHookInterface):
    """Sets `readme` and `urls`, which are dynamic in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the project's metadata in place."""
        repository = (self.config.get("repository") or os.environ.get("HGPO_REPOSITORY", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": page_for_index(text, repository, f"v{metadata['version']}"),
        }
        metadata["urls"] = project_urls(repository)


def project_urls(repository: str) -> dict[str, str]:
    """Name -> address of the links beside the page; without a repository only the paper's."""
    if not repository:
        return {"Paper": PAPER}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Paper": PAPER,
    }


def page_for_index(text: str, repository: str, tag: str) -> str:
    """README.md's text with links into the repository to the files of `tag`; without a repository, with plain text."""

    def replaced(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        if target.startswith("#"):
            return link[0]
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/{tag}/{target})"

    return _LINK.sub(replaced, text)
