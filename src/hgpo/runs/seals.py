"""Text files that tell whether they still are what was written, so that one flipped digit is no other result.

*.json       the key "sha256": a digest of all the other keys, however they are laid out
config.toml  its first line: a digest of all that follows; whoever changes a setting by hand deletes it
others       a list elsewhere, {path below the run: {"bytes": so many of them, "sha256": their digest}}, in the state
             of a checkpoint and in summary.json; a file that grows may be longer by now
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hgpo.contents import ChangedFileError, text_digest, values_digest

KEY = "sha256"
_STAMP = re.compile(r"# sha256 ([0-9a-f]{64}) [^\n]*\n")
_CHANGED = "its content is not what was written (SHA-256)"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its digest. Example: `unsealed(path, sealed({"a": 1})) == {"a": 1}`."""
    return {**document, KEY: values_digest(document)}


def unsealed(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without its digest; one that has none is taken as it is.

    Raises:
        ChangedFileError: it is not what `sealed` was given; `path` is named.
    """
    held = {key: value for key, value in document.items() if key != KEY}
    if KEY in document and document[KEY] != values_digest(held):
        raise ChangedFileError(path, _CHANGED)
    return held


def stamped(text: str) -> str:
    """The text under a first line, a comment in TOML, that holds its digest."""
    return f"# sha256 {text_digest(text)} of what follows; delete this line when you change a setting\n{text}"


def check_stamp(path: Path, text: str) -> None:
    """Refuse a text that is not what was stamped; one without a stamp is taken as it is.

    Raises:
        ChangedFileError: `path` is named, and what to do.
    """
    stamp = _STAMP.match(text)
    if stamp is not None and text_digest(text[stamp.end() :]) != stamp[1]:
        raise ChangedFileError(
            path, f"{_CHANGED}. Delete its first line if you changed it on purpose, else bring it back from a copy"
        )


def list_records(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What those of the named files hold that are there."""
    contents = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    return {name: {"bytes": len(content), KEY: _digest(content)} for name, content in contents.items()}


def check_record(folder: Path, name: str, records: object) -> None:
    """Refuse a listed file that is shorter, or whose first so many bytes are others; one that is gone is passed over.

    That it is gone is told where it is needed, in words that fit.

    Raises:
        ChangedFileError: the file is named.
    """
    facts = records.get(name) if isinstance(records, Mapping) else None
    if not isinstance(facts, Mapping) or not (folder / name).is_file():
        return
    content = (folder / name).read_bytes()
    length = facts.get("bytes")
    if type(length) is not int or len(content) < length or _digest(content[:length]) != facts.get(KEY):
        raise ChangedFileError(folder / name, f"{_CHANGED}. Bring it back from a copy")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
