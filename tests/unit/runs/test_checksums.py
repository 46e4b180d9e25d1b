"""Folders whose files are unchanged since their checksums were written, or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hgpo.runs.checkpoints import CONTENTS_FILE, ChangedFileError, check_checksums, write_checksums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "weights").write_bytes(bytes(range(256)))
    (tmp_path / "deep" / "words").write_text("ü")
    write_checksums(tmp_path)
    return tmp_path


def resealed(folder: Path, files: object) -> None:
    """As somebody writes it who knows the format."""
    document = {"format_version": 2, "files": files}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / CONTENTS_FILE).write_text(json.dumps(document | {"sha256": digest}))


def listed(folder: Path, **changes: object) -> None:
    document = json.loads((folder / CONTENTS_FILE).read_text())
    (folder / CONTENTS_FILE).write_text(json.dumps(document | changes))


def test_an_unchanged_folder_is_accepted(folder: Path) -> None:
    check_checksums(folder)
    (folder / "a note of my own").write_text("that nobody loads")
    check_checksums(folder)
    write_checksums(folder)
    check_checksums(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "weights").write_bytes(bytes(256)), "weights: its bytes are not"),
        (lambda folder: (folder / "weights").unlink(), "weights: missing"),
        (lambda folder: (folder / "deep" / "words").write_text("u"), "words: 1 bytes instead of 2"),
        (lambda folder: (folder / CONTENTS_FILE).unlink(), "No such file"),
        (lambda folder: (folder / CONTENTS_FILE).write_text("{"), "contents.json: "),
        (lambda folder: (folder / CONTENTS_FILE).write_text("[" * 100_000), "contents.json: "),
        (lambda folder: (folder / CONTENTS_FILE).write_text("5"), "not a list of files"),
        (lambda folder: listed(folder, format_version=9), "not a list of files of format_version 2"),
        (lambda folder: listed(folder, files=[1]), "contents.json: its content has changed"),
        *(
            (lambda folder, files=files: resealed(folder, files), "not a list of files of format_version 2")
            for files in (
                None,
                [1],
                {"weights": 3},
                {"weights": {"bytes": 256}},
                {"../weights": {"bytes": 256, "sha256": ""}},
                {"/etc/passwd": {"bytes": 1, "sha256": ""}},
            )
        ),
    ],
)
def test_a_changed_folder_is_refused(folder: Path, damage: Callable[[Path], object], said: str) -> None:
    damage(folder)
    with pytest.raises(ChangedFileError, match=said):
        check_checksums(folder)
