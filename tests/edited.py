"""Files of a run as a person edits them: what says that they are as they were written goes away with the change."""

from __future__ import annotations

import json
from pathlib import Path


def edit_settings(run: Path, old: str, new: str) -> None:
    """Change `config.toml`."""
    path = run / "config.toml"
    stamp, settings = path.read_text().split("\n", 1)
    assert stamp.startswith("# sha256 ")
    path.write_text(settings.replace(old, new))


def edit_json(path: Path, old: str, new: str) -> None:
    """Change a file of JSON, by its text."""
    path.write_text(json.dumps(_without_digests(json.loads(path.read_text().replace(old, new)))))


def forget_digests(run: Path) -> None:
    """A finished run that says no more what its files were."""
    edit_json(run / "summary.json", "", "")


def _without_digests(document: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if name not in ("sha256", "files")}
