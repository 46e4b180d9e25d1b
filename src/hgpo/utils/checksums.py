"""Sizes and SHA-256 checksums of the files of a checkpoint or of `start/`, checked before weights are loaded.

A flipped bit, a truncated copy or a file of another run can leave weights that load and differ from those trained.
Other files of a run have no checksum: they are validated by schema when they are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Contents = Mapping[str, Mapping[str, Any]]
"""{path below the folder: {"bytes": size, "sha256": hexadecimal digest}}"""

CONTENTS_FILE = "contents.json"
FORMAT_VERSION = 1


class ChangedFileError(ValueError):
    """A file differs from what was written.

    Attributes:
        path: The file.
        problem: The difference.
    """

    def __init__(self, path: Path, problem: object) -> None:
        """Name both in the message."""
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


def list_contents(folder: Path) -> dict[str, dict[str, Any]]:
    """`Contents` of all files in a folder, including hidden ones, sorted by name."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor() as threads:  # hashing lets other threads run
        digests = list(threads.map(_digest, found))
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": digest}
        for path, digest in zip(found, digests, strict=True)
    }


def check_sizes(folder: Path, contents: object) -> None:
    """Check that every listed file exists with its size; reads no file.

    Raises:
        ChangedFileError: A file is missing or has another size.
    """
    if not isinstance(contents, Mapping):
        raise ChangedFileError(folder, "its list of files is malformed")
    for name, facts in contents.items():
        size = facts.get("bytes") if isinstance(facts, Mapping) else None
        if type(size) is not int:
            raise ChangedFileError(folder / name, "listed without its size")
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            raise ChangedFileError(folder / name, "missing" if found is None else f"{found} bytes instead of {size}")


def check_digests(folder: Path, contents: Contents, leave_out: Collection[str] = ()) -> None:
    """Check the SHA-256 of every listed file but those in `leave_out`; reads each file once.

    Raises:
        ChangedFileError: A file has other bytes, or cannot be read.
    """
    names = [name for name in contents if name not in leave_out]
    try:
        with ThreadPoolExecutor() as threads:
            digests = list(threads.map(lambda name: _digest(folder / name), names))
    except OSError as error:
        raise ChangedFileError(Path(error.filename or folder), error.strerror) from error
    for name, digest in zip(names, digests, strict=True):
        if digest != _listed(contents, name):
            raise ChangedFileError(folder / name, "its bytes are not those that were written (SHA-256)")


def seal(folder: Path) -> None:
    """Write `CONTENTS_FILE`, the checksums of all other files in the folder."""
    (folder / CONTENTS_FILE).unlink(missing_ok=True)
    document = {"format_version": FORMAT_VERSION, "files": list_contents(folder)}
    (folder / CONTENTS_FILE).write_text(json.dumps(document, indent=1), encoding="utf-8")


def check_seal(folder: Path) -> None:
    """Check a folder against its `CONTENTS_FILE`.

    Raises:
        ChangedFileError: A file, or `CONTENTS_FILE` itself, is missing or has changed.
    """
    path = folder / CONTENTS_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ChangedFileError(path, error) from error
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise ChangedFileError(path, f"not a list of files of format_version {FORMAT_VERSION}")
    contents = document.get("files")
    check_sizes(folder, contents)
    assert isinstance(contents, dict), "check_sizes has checked this"
    check_digests(folder, contents)


def _listed(contents: Contents, name: str) -> object:
    facts: object = contents[name]
    return facts.get("sha256") if isinstance(facts, Mapping) else None


def values_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object, hexadecimal; independent of key order and whitespace."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
