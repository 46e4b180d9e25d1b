"""A run's checkpoints as folders: written completely or not at all, listed, checked, deleted when newer ones exist.

    checkpoints/<update>/    model and tokenizer in Hugging Face format (safetensors), and files of the engine
                             trainer_state.json    update, the caller's state, size and SHA-256 of every other file,
                                                   and a SHA-256 of these values

A checkpoint is written to `.<update>.partial`, flushed to disk, and renamed. A checkpoint is renamed to
`.<update>.deleted` before it is deleted, also when one of the same number takes its name, so that a process may die at
any point. A run resumes from its newest complete checkpoint, so it writes a number again only over an incomplete one.

Checksums detect a flipped bit, a truncated copy or a file of another run in a checkpoint or in `start/`, before weights
are loaded. Other files of a run have no checksum: they are validated by schema when they are read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hgpo.utils.files import delete_folder, publish, renamed_to_delete
from hgpo.utils.text import visible_lines

STATE_FILE = "trainer_state.json"
FORMAT_VERSION = 2

CONTENTS_FILE = "contents.json"

logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message names the file and what to do."""


@contextmanager
def whole_checkpoint(folder: Path, update: int, state: Mapping[str, Any], keep: int | None = None) -> Iterator[Path]:
    """A hidden folder to write files to; it becomes `folder`/<update> when the block ends without an error.

    Args:
        folder: Holds all checkpoints of the run.
        update: Number of the checkpoint; one of the same number is replaced.
        state: Anything JSON can hold: generator states, counters, settings.
        keep: How many of the newest stay, this one included; the others are deleted. Default: all.

    Raises:
        TypeError, ValueError: `state` is not JSON, or holds NaN. Nothing is written then.
    """
    json.dumps(dict(state), allow_nan=False)
    partial, final = folder / f".{update}.partial", folder / str(update)
    delete_folder(partial)  # left by a process that died while writing
    partial.mkdir(parents=True)
    yield partial
    _write_contents(partial, STATE_FILE, {"update": update, "state": dict(state)})
    publish(partial, final)
    if keep is not None:
        ours = [path for path in numbered(folder) if (path / STATE_FILE).exists()]
        for path in surplus(ours, final, keep):
            delete_folder(renamed_to_delete(path))


def recover(folder: Path) -> None:
    """Delete the unfinished folders of a process that died.

    The caller must hold the lock of the run (`hgpo.runs.folder.exclusive`).
    """
    for ending in ("partial", "deleted"):
        for path in list(folder.glob(f".[0-9]*.{ending}")):
            delete_folder(path)


def surplus(checkpoints: Sequence[Path], newest: Path, keep: int) -> list[Path]:
    """The oldest of `checkpoints` (ascending) to delete so that `keep` remain, `newest` among them."""
    older = [path for path in checkpoints if path != newest]
    return older[: max(0, len(older) + 1 - keep)]


def numbered(folder: Path) -> list[Path]:
    """The checkpoint folders, including damaged ones, in ascending order of update."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def newest_complete(folder: Path) -> Path | None:
    """The complete checkpoint with the highest update, or None. Damaged ones are skipped with a logged warning."""
    return next((path for path in reversed(numbered(folder)) if is_complete(path)), None)


def is_complete(path: Path) -> bool:
    """Whether every file of the checkpoint exists and is complete; if not, log a warning with the file."""
    try:
        read_trainer_state(path)
    except CheckpointError as error:
        logger.warning("checkpoint skipped: %s", visible_lines(str(error)))
        return False
    return True


def read_trainer_state(path: Path) -> dict[str, Any]:
    """Contents of `trainer_state.json`, after checking that every file it lists exists and has the recorded size.

    Raises:
        CheckpointError: the file is damaged, or another one is missing or of another size.
    """
    try:
        return _read_contents(path, STATE_FILE)
    except ChangedFileError as error:
        raise unusable(path, error) from error


def check_bytes(path: Path, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """As `read_trainer_state`, and check the bytes of all files except those whose names begin with a `leave_out`.

    Raises:
        CheckpointError: a file holds other bytes than were written.
    """
    document = read_trainer_state(path)
    try:
        _check_digests(path, document["files"], leave_out)
    except ChangedFileError as error:
        raise unusable(path, error) from error
    return document


def unusable(path: Path, problem: object, name: str = "") -> CheckpointError:
    """Return the error for an unusable checkpoint.

    Args:
        path: the checkpoint folder.
        problem: why it cannot be used.
        name: the file in the folder that causes the problem; "" if unknown.
    """
    if not path.is_dir():
        return CheckpointError(f"{path} no longer exists: a running training deletes its old checkpoints")
    where = f"{path / name}: " if name else "" if isinstance(problem, ChangedFileError) else f"{path}: "
    remedy = f"Delete the checkpoint folder {path} to resume from the previous checkpoint."
    return CheckpointError(f"{where}{problem}. {remedy}")


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


def write_checksums(folder: Path) -> None:
    """Write `CONTENTS_FILE`, the checksums of all other files in the folder."""
    (folder / CONTENTS_FILE).unlink(missing_ok=True)
    _write_contents(folder, CONTENTS_FILE, {})


def check_checksums(folder: Path) -> None:
    """Check a folder against its `CONTENTS_FILE`.

    Raises:
        ChangedFileError: A file, or `CONTENTS_FILE` itself, is missing or has changed.
    """
    _check_digests(folder, _read_contents(folder, CONTENTS_FILE)["files"])


def content_digest(folder: Path) -> str:
    """One SHA-256 of all files that a checkpoint or `CONTENTS_FILE` lists, from their checksums.

    Raises:
        ChangedFileError: The list has changed, or a file is missing or has another size.
    """
    return _values_digest(listed_files(folder))


def listed_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of all files that a checkpoint or `CONTENTS_FILE` lists, by path in the folder.

    Raises:
        ChangedFileError: The list has changed, or a file is missing or has another size.
    """
    name = STATE_FILE if (folder / STATE_FILE).exists() else CONTENTS_FILE
    files: dict[str, dict[str, Any]] = _read_contents(folder, name)["files"]
    return files


def files_digest(path: Path) -> str:
    """One SHA-256 of a file, or of all files in a folder with their paths in it."""
    return _digest(path) if path.is_file() else _values_digest(_digests(path))


def _write_contents(folder: Path, name: str, values: Mapping[str, Any]) -> None:
    """Write `values`, size and SHA-256 of every file in the folder, and a SHA-256 of all that, to the file `name`."""
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": digest} for name, digest in _digests(folder).items()
    }
    document = json.loads(json.dumps({"format_version": FORMAT_VERSION, **values, "files": files}))  # as it is read
    text = json.dumps({**document, "sha256": _values_digest(document)}, indent=1, allow_nan=False)
    (folder / name).write_text(text, encoding="utf-8")


def _read_contents(folder: Path, name: str) -> dict[str, Any]:
    """What `_write_contents` wrote, after checking that every listed file exists with its size; reads no other file.

    Raises:
        ChangedFileError: A file is missing or has another size, or the file `name` has changed.
    """
    path = folder / name
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise  # another user may read it
    except (OSError, ValueError, RecursionError) as error:
        raise ChangedFileError(path, error) from error
    unknown = ChangedFileError(path, f"not a list of files of format_version {FORMAT_VERSION}")
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise unknown
    if document.pop("sha256", None) != _values_digest(document):
        raise ChangedFileError(path, "its content has changed since it was written (SHA-256 differs)")
    if not _are_files(document.get("files")):
        raise unknown
    for listed, facts in document["files"].items():
        size = (folder / listed).stat().st_size if (folder / listed).is_file() else None
        if size != facts["bytes"]:
            problem = "missing" if size is None else f"{size} bytes instead of {facts['bytes']}"
            raise ChangedFileError(folder / listed, problem)
    return document


def _are_files(files: object) -> bool:
    """Whether these are files in a folder, by path, with size and SHA-256."""
    return isinstance(files, dict) and all(
        not Path(name).is_absolute()
        and ".." not in Path(name).parts
        and isinstance(facts, dict)
        and {key: type(value) for key, value in facts.items()} == {"bytes": int, "sha256": str}
        for name, facts in files.items()
    )


def _check_digests(folder: Path, files: Mapping[str, Mapping[str, Any]], leave_out: Collection[str] = ()) -> None:
    """Check the SHA-256 of every listed file except those whose names begin with one of `leave_out`.

    Raises:
        ChangedFileError: A file has other bytes, or cannot be read.
    """
    names = [name for name in files if not name.startswith(tuple(leave_out))]
    try:
        with ThreadPoolExecutor() as threads:
            digests = list(threads.map(lambda name: _digest(folder / name), names))
    except PermissionError:
        raise
    except OSError as error:
        raise ChangedFileError(Path(error.filename or folder), error.strerror) from error
    for name, digest in zip(names, digests, strict=True):
        if digest != files[name]["sha256"]:
            raise ChangedFileError(folder / name, "its bytes are not those that were written (SHA-256)")


def _values_digest(values: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON object, hexadecimal; independent of key order and whitespace."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode("utf-8")).hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, by path in the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor() as threads:  # hashing releases the GIL
        digests = list(threads.map(_digest, paths))
    return {path.relative_to(folder).as_posix(): digest for path, digest in zip(paths, digests, strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
