"""The folder of a run: its paths, its lock, settings, metrics and JSON files. Writes are flushed to disk.

    runs/<name>/config.toml  metrics.jsonl  rollouts/*.parquet  start/  checkpoints/<update>/  summary.json

`start/` is the policy before the first update; it is also the frozen reference of the KL term. One process at a time
trains a run. The operating system releases the lock when its process ends, however it ends.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatch
from io import FileIO
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from hgpo.config import Config, ConfigError, dump_config, read_config
from hgpo.rollout.state_keys import JSON
from hgpo.runs.trust import SIGNATURE_FILE, settings_to_trust, sign
from hgpo.utils.files import naming, try_lock, write_text

LOCK_FILE = ".lock"
_NOTE_BYTES = 200  # the byte behind them is the one that Windows locks (`hgpo.utils.files`)

logger = logging.getLogger(__name__)
Schema = TypeVar("Schema")

_PARTIAL = ".*.partial"
_BEFORE_ANYTHING = ("config.toml", "environment.json", LOCK_FILE, SIGNATURE_FILE)
_FIRST_TABLE = "[run]"  # of every config.toml that a run has written
_FROM_A_COPY = "Restore the file from a copy"


class RunInUseError(ValueError):
    """Another process trains the run; the message names it and a remedy."""


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock the run in `folder` for the block; other processes can still read it.

    The lock file is not deleted afterwards, because another process may have opened it already.

    Raises:
        RunInUseError: another process holds the lock.
        RunDirectoryError: the lock file is a link.
    """
    _refuse_link(folder / LOCK_FILE)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:  # a buffer would also read the locked byte
        try:
            if not try_lock(file.fileno()):
                raise RunInUseError(
                    f"{folder} is being trained by {_read_note(file)}. Wait until it ends, or stop it and continue "
                    f"with {resume_command(folder)}; `hgpo inspect` and `hgpo eval` work meanwhile"
                )
        except OSError as error:
            logger.warning(
                "%s: this file system has no locks (%s); take care that no other process trains it", folder, error
            )
        _write_note(file)
        yield


def _write_note(file: FileIO) -> None:
    note = f"process {os.getpid()} on {platform.node()} since {datetime.now():%Y-%m-%d %H:%M}"
    file.seek(0)
    file.write(note.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES))  # padded, to overwrite a longer note


def _read_note(file: FileIO) -> str:
    file.seek(0)
    return file.read(_NOTE_BYTES).decode(errors="replace").strip() or "another process"


class RunDirectoryError(ValueError):
    """The run directory is taken, missing or damaged; the message contains the remedy."""


def resume_command(path: Path) -> str:
    """The command that continues the run in `path`, for messages."""
    return f"`hgpo train --resume {shlex.quote(str(path))}`"


def _refuse_link(path: Path) -> None:
    """Refuse to write through a link, by which a run from elsewhere could change any file of the user."""
    if path.is_symlink():
        raise RunDirectoryError(f"{path} is a link, through which hgpo does not write: replace it with the file itself")


class RunDirectory:
    """Paths of one run.

    Attributes:
        path: Its folder, such as `runs/quickstart`.
        config: The complete settings, as TOML.
        metrics: One JSON object per update.
        rollouts: Folder of stored steps with their advantages, one parquet file per update.
        start: Folder of the policy before the first update.
        checkpoints: Folder with one folder per kept checkpoint, named by its update.
        environment: The environment's description.
        summary: The run's result, written when the run is complete.
        tracking: What each tracker has received, and the tracker's id of the run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.rollouts = path / "rollouts"
        self.start = path / "start"
        self.checkpoints = path / "checkpoints"
        self.environment = path / "environment.json"
        self.summary = path / "summary.json"
        self.tracking = path / "tracking.json"

    def evaluation(self, name: str) -> Path:
        """A stored evaluation, e.g. `before`, `after`, `update-40`."""
        return self.path / "evaluations" / f"{name}.json"

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return self.summary.exists()

    def rollout_file(self, update: int) -> Path:
        """Where the steps of one update are stored."""
        return self.rollouts / f"{update:05d}.parquet"


def create_run_directory(config: Config) -> RunDirectory:
    """Make the folder and write `config.toml`; a folder that is not empty is a `RunDirectoryError`.

    Files left by a process that died before it wrote `config.toml` do not count.
    """
    run = RunDirectory(config.run_directory)
    _refuse_taken(run.path)
    run.path.mkdir(parents=True, exist_ok=True)
    with exclusive(run.path):
        _refuse_taken(run.path)  # another process may have made it meanwhile
        settings = dump_config(config)
        if settings_to_trust(config, trains=True) or config.run.engine == "verl":
            sign(run.path, settings)
        write_text(run.config, settings, durable=True)
    return run


def _refuse_taken(path: Path) -> None:
    if not path.exists() or (path.is_dir() and all(_is_left_over(entry.name) for entry in path.iterdir())):
        return
    if (path / "config.toml").is_file():
        raise RunDirectoryError(
            f"{path} exists already. Continue it with {resume_command(path)}, choose another "
            "name with `run.name=…`, or delete it"
        )
    raise RunDirectoryError(f"{path} exists already and is not a run directory; choose another name with `run.name=…`")


def _is_left_over(name: str) -> bool:
    return name in (LOCK_FILE, SIGNATURE_FILE) or fnmatch(name, _PARTIAL)


def discard_unbegun(run: RunDirectory) -> None:
    """Delete a run that failed before it wrote any result, so that the corrected command can use the same directory."""
    found = list(run.path.iterdir())
    if all(entry.name in _BEFORE_ANYTHING for entry in found):
        for entry in found:
            entry.unlink()
        run.path.rmdir()


@contextmanager
def new_run(config: Config) -> Iterator[RunDirectory]:
    """A new run directory, locked as by `exclusive`; an error before the first result deletes it again."""
    run = create_run_directory(config)
    try:
        with exclusive(run.path):
            yield run
    except RunInUseError:
        raise  # another process continues it already
    except Exception:
        discard_unbegun(run)
        raise


def open_run_directory(path: Path) -> tuple[RunDirectory, Config]:
    """Open an existing run and read its settings.

    The modules that the settings name are not imported, so reading a run never runs its code. Callers that need them
    first call `hgpo.runs.trust.allow_settings`, then `hgpo.config.check_names`, which imports them.
    """
    run = RunDirectory(path)
    if not run.config.is_file():
        raise RunDirectoryError(f"{path} is not a run directory: it has no config.toml")
    if _FIRST_TABLE not in run.config.read_text(encoding="utf-8", errors="replace"):
        raise RunDirectoryError(f"{run.config} contains no settings of a run; restore it from a copy")
    try:
        config = read_config(run.config)
    except ConfigError as error:
        raise RunDirectoryError(f"{run.config}: {error}") from error
    return run, config


def state_key_of_run(path: Path) -> str | None:
    """The state key of the run at `path` if it applies to whole batches, and so to stored steps; None for other paths.

    Raises:
        RunDirectoryError: The run's settings cannot be read.
    """
    if not RunDirectory(path).config.is_file():
        return None
    try:
        state = open_run_directory(path)[1].rollout.state
    except RunDirectoryError as error:
        raise RunDirectoryError(f"the run's state key is unknown, name it with --state: {error}") from error
    return state if state == JSON else None


def append_metrics(run: RunDirectory, row: Mapping[str, Any]) -> None:
    """Add one update's metrics; the line is flushed to disk before this returns."""
    _append_rows(run.metrics, [row])


def read_metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """All complete rows; a last line that was cut off by a crash is left out.

    Raises:
        RunDirectoryError: Another line is not JSON or not a row of metrics, or the run is finished and does not have
            exactly one row for each of its updates, in order.
    """
    if not run.metrics.is_file():
        return []
    rows = []
    lines = run.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            if number < len(lines):
                raise RunDirectoryError(f"{run.metrics} line {number} is not JSON: {error}. {_FROM_A_COPY}") from error
            continue
        if problem := _problem_of_row(row):
            raise RunDirectoryError(f"{run.metrics} line {number} is no row of metrics: {problem}. {_FROM_A_COPY}")
        rows.append(row)
    updates = _finished_with(run).get("updates")
    if isinstance(updates, int) and (problem := _wrong_update(rows, updates)):
        raise RunDirectoryError(f"{run.metrics} {problem}, and the run ended after update {updates}. {_FROM_A_COPY}")
    return rows


def _problem_of_row(row: object) -> str:
    """Why `row` is not an object of numbers or nulls with the number of an update; "" if it is one."""
    if not isinstance(row, dict) or type(row.get("update")) is not int:
        return "it has no number of an update"
    others = [
        name
        for name, value in row.items()
        if not isinstance(value, (int, float, NoneType)) or (isinstance(value, int) and value.bit_length() > 63)
    ]
    return f"{others[0]!r} is not a number of 64 bits" if others else ""


def rewind_updates(run: RunDirectory, update: int) -> None:
    """Keep the metrics and the stored steps of updates 1 to `update`; later updates will be made again.

    Later rows of metrics go to `metrics.superseded.jsonl`; later steps are deleted.

    Raises:
        RunDirectoryError: A row up to `update` is missing or duplicate.
    """
    rows = read_metrics(run)
    kept = [row for row in rows if row["update"] <= update]
    if problem := _wrong_update(kept, update):
        raise RunDirectoryError(
            f"{run.metrics} {problem}, and the run resumes from update {update}. {_FROM_A_COPY}, or delete the "
            f"checkpoints after the last complete update in {run.checkpoints}, to repeat the later updates"
        )
    later = [row for row in rows if row["update"] > update]
    if later:
        _append_rows(run.path / "metrics.superseded.jsonl", later)
    if run.metrics.exists():
        write_text(run.metrics, "".join(json.dumps(row) + "\n" for row in kept), durable=True)
    for path in run.rollouts.glob("*.parquet"):
        if path.stem.isdecimal() and int(path.stem) > update:
            path.unlink()


def _wrong_update(rows: Sequence[Mapping[str, Any]], last: int) -> str:
    """How `rows` differ from one row for each of the updates 1 to `last`, in this order; "" if they do not."""
    found = [row["update"] for row in rows]
    for update in range(1, last + 1):
        if found[update - 1 : update] != [update]:
            return f"has {found.count(update) or 'no'} rows of update {update} where one is expected on line {update}"
    return f"has another row of update {found[last]} after that of update {last}" if len(found) > last else ""


def _append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    _refuse_link(path)
    with naming(path), path.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
        lines.flush()
        os.fsync(lines.fileno())


def lost_evaluations(run: RunDirectory, names: object = None) -> list[Path]:
    """Files of the training's own evaluations that are missing.

    Args:
        run: The run.
        names: The evaluations that a checkpoint's state lists; None: those that `summary.json` lists.

    Raises:
        RunDirectoryError: `summary.json` is damaged.
    """
    listed = _finished_with(run).get("evaluations") if names is None else names
    files = [run.evaluation(name) for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    folder = run.evaluation("before").parent
    return [file for file in files if file.parent == folder and not file.exists()]


def _finished_with(run: RunDirectory) -> Mapping[str, object]:
    """`summary.json` of a finished run; empty for an unfinished one."""
    if not run.complete:
        return {}
    try:
        return read_json(run.summary)
    except ValueError as error:
        raise RunDirectoryError(str(error)) from error


def check_schema(path: Path, document: Mapping[str, Any], schema: type[Schema]) -> Schema:
    """The JSON object of the file `path` as a dataclass; other keys are ignored.

    Raises:
        ValueError: A value is missing or of another type; the message names the file and the value.
    """
    text = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    adapter: TypeAdapter[Schema] = TypeAdapter(schema)
    try:
        return adapter.validate_json(text, strict=True)  # strict: "0.5" is no number
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{path} is damaged: {place!r}: {problem['msg']}") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n", durable=True)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: The file is not JSON, or holds no object; the message names it.
        OSError: It cannot be read.
    """
    if path.exists() and not path.is_file():  # reading a named pipe would not end
        raise ValueError(f"{path} is not a file")
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} holds no object")
    return document
