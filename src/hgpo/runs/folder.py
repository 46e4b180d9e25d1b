"""The folder a run writes, and the rules that nothing already written is lost.

    runs/<name>/config.toml  metrics.jsonl  rollouts/*.parquet  start/  checkpoints/<update>/  summary.json

`start/` is the policy before the first update; it is also the frozen reference of the KL term.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from hgpo.config import Config, ConfigError, dump_config, read_config
from hgpo.contents import ChangedFileError
from hgpo.files import naming, write_text
from hgpo.runs.checkpoints import recover
from hgpo.runs.lock import LOCK_FILE, exclusive
from hgpo.runs.seals import check_record, check_stamp, sealed, stamped, unsealed
from hgpo.runs.trust import SIGNATURE_FILE, modules_named, sign

_PARTIAL = ".*.partial"
_BEFORE_ANYTHING = ("config.toml", "environment.json", LOCK_FILE, SIGNATURE_FILE)
_FIRST_TABLE = "[run]"  # of every config.toml that a run has written
# Names of this kind that training alone writes: `hgpo eval` and `hgpo inspect` may be at work on others.
_TRAINING_LEFTOVERS = (
    *(f".{name}.*.partial" for name in ("config.toml", "environment.json", "metrics.jsonl")),
    *(f".{name}.*.partial" for name in ("summary.json", "tracking.json")),
    *(f"evaluations/.{name}.json.*.partial" for name in ("before", "after", "update-*")),
    "rollouts/.[0-9]*.parquet.*.partial",
)


class RunDirectoryError(ValueError):
    """The run directory is taken, missing or damaged; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run. Example: `RunDirectory(Path("runs/quickstart")).metrics`."""

    path: Path

    @property
    def config(self) -> Path:
        """The complete settings, as TOML."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """One JSON object per update."""
        return self.path / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """Stored steps with their advantages, one parquet file per update."""
        return self.path / "rollouts"

    @property
    def start(self) -> Path:
        """The policy before the first update."""
        return self.path / "start"

    @property
    def checkpoints(self) -> Path:
        """One folder per kept checkpoint, named by its update."""
        return self.path / "checkpoints"

    @property
    def environment(self) -> Path:
        """What the environment says of itself."""
        return self.path / "environment.json"

    @property
    def summary(self) -> Path:
        """What changed, written once the run is complete."""
        return self.path / "summary.json"

    @property
    def tracking(self) -> Path:
        """What the run's trackers were sent, and under which id each knows it."""
        return self.path / "tracking.json"

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
    """Make the folder and write `config.toml`; a folder that holds anything is a `RunDirectoryError`.

    What a process leaves that died before it had written `config.toml` counts as nothing.
    """
    run = RunDirectory(config.run_directory)
    _refuse_taken(run.path)
    run.path.mkdir(parents=True, exist_ok=True)
    with exclusive(run.path):
        _refuse_taken(run.path)  # by a process that was a moment faster
        settings = stamped(dump_config(config))
        if modules_named(config):
            sign(run.path, settings)
        write_text(run.config, settings, durable=True)
    return run


def _refuse_taken(path: Path) -> None:
    if not path.exists() or (path.is_dir() and all(_is_left_over(entry.name) for entry in path.iterdir())):
        return
    if (path / "config.toml").is_file():
        raise RunDirectoryError(
            f"{path} exists already. Continue it with `hgpo train --resume {path}`, choose another "
            "name with `run.name=…`, or delete it"
        )
    raise RunDirectoryError(f"{path} exists already and is no run; choose another name with `run.name=…`")


def _is_left_over(name: str) -> bool:
    return name in (LOCK_FILE, SIGNATURE_FILE) or fnmatch(name, _PARTIAL)


def discard_unbegun(run: RunDirectory) -> None:
    """Delete a run that failed before it had made anything, so that the corrected command finds its place free."""
    found = list(run.path.iterdir())
    if all(entry.name in _BEFORE_ANYTHING for entry in found):
        for entry in found:
            entry.unlink()
        run.path.rmdir()


def remove_leftovers(run: RunDirectory) -> None:
    """Delete what a killed training process was writing; a checkpoint that it was replacing is there again.

    Only whoever holds the run may (`exclusive`).
    """
    recover(run.checkpoints)
    for pattern in _TRAINING_LEFTOVERS:
        for path in list(run.path.glob(pattern)):
            path.unlink()


def open_run_directory(path: Path) -> tuple[RunDirectory, Config]:
    """An existing run and its settings.

    Nothing that they name is imported: to read a run is not to run its code. Whoever goes on to compute asks
    `hgpo.runs.trust.allow_imports`, and then calls `hgpo.config.check_names`, which does.
    """
    run = RunDirectory(path)
    if not run.config.exists():
        raise RunDirectoryError(f"{path} is not a run directory: it has no config.toml")
    try:
        text = run.config.read_text(encoding="utf-8", errors="replace")
        check_stamp(run.config, text)
    except ChangedFileError as error:
        raise RunDirectoryError(str(error)) from error
    if _FIRST_TABLE not in text:
        raise RunDirectoryError(f"{run.config} holds no settings of a run; bring it back from a copy")
    try:
        config = read_config(run.config)
    except ConfigError as error:
        raise RunDirectoryError(f"{run.config}: {error}") from error
    return run, config


def append_metrics(run: RunDirectory, row: Mapping[str, Any]) -> None:
    """Add one update's metrics; the line is flushed to disk before this returns."""
    _append_rows(run.metrics, [row])


def read_metrics(run: RunDirectory) -> list[dict[str, Any]]:
    """All complete rows; a last line that was cut off by a crash is left out.

    Raises:
        RunDirectoryError: another line is damaged, or is no object with the number of an update; or the run is
            finished, and they are not the rows that it was finished with.
    """
    if not run.metrics.exists():
        return []
    check_finished(run, run.metrics.name)
    rows = []
    lines = run.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            if number < len(lines):
                raise RunDirectoryError(f"{run.metrics} line {number} is not JSON: {error}") from error
            continue
        if not isinstance(row, dict) or type(row.get("update")) is not int:
            raise RunDirectoryError(f"{run.metrics} line {number} is no row of metrics: it has no number of an update")
        rows.append(row)
    return rows


def rewind_metrics(run: RunDirectory, update: int) -> None:
    """Keep the rows of updates 1 to `update`; later ones, which will be made again, go to `metrics.superseded.jsonl`.

    Raises:
        RunDirectoryError: a row up to `update` is missing or there twice, which no training leaves behind.
    """
    rows = read_metrics(run)
    kept = [row for row in rows if row["update"] <= update]
    _check_complete(run, [row["update"] for row in kept], update)
    later = [row for row in rows if row["update"] > update]
    if later:
        _append_rows(run.path / "metrics.superseded.jsonl", later)
    if run.metrics.exists():
        write_text(run.metrics, "".join(json.dumps(row) + "\n" for row in kept), durable=True)


def _check_complete(run: RunDirectory, found: list[int], update: int) -> None:
    wrong = next((due for due, row in zip(range(1, update + 1), [*found, 0], strict=False) if row != due), None)
    if wrong is None and len(found) > update:
        wrong = found[-1]
    if wrong is None:
        return
    problem = f"has {found.count(wrong) or 'no'} rows of update {wrong}"
    raise RunDirectoryError(
        f"{run.metrics} {problem}, and the run goes on from update {update}. Bring the file back from a copy, or "
        f"delete the checkpoints after update {wrong - 1} in {run.checkpoints}, to train those updates again"
    )


def _append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with naming(path), path.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
        lines.flush()
        os.fsync(lines.fileno())


def check_finished(run: RunDirectory, name: str) -> None:
    """Refuse a file of a finished run that is not as it was then; there is nothing to hold an unfinished run's to.

    Raises:
        RunDirectoryError: it is another, or `summary.json`, which says so, is damaged.
    """
    try:
        check_record(run.path, name, _finished_with(run))
    except ChangedFileError as error:
        raise RunDirectoryError(str(error)) from error


def lost_evaluations(run: RunDirectory, records: object = None) -> list[Path]:
    """The evaluations that `records` list, else those that a run was finished with, and that are gone since.

    Args:
        run: whose.
        records: of a checkpoint, as `check_records` takes them.

    Raises:
        RunDirectoryError: `summary.json`, which lists what a run was finished with, is damaged.
    """
    listed = _finished_with(run) if records is None else records
    folder = run.evaluation("before").parent
    files = [run.path / name for name in sorted(listed)] if isinstance(listed, Mapping) else []
    return [file for file in files if file.parent == folder and not file.exists()]


def _finished_with(run: RunDirectory) -> Mapping[str, object]:
    """The facts on the files of a finished run, by their names below it; none of an unfinished run's."""
    if not run.complete:
        return {}
    try:
        files = read_json(run.summary).get("files")
    except ValueError as error:
        raise RunDirectoryError(str(error)) from error
    return files if isinstance(files, Mapping) else {}


def check_records(run: RunDirectory, records: object) -> None:
    """Refuse a run whose files are not as a checkpoint lists them, from which it is to go on.

    Rows of metrics that are missing at the end are told by `rewind_metrics`, by their updates.

    Raises:
        RunDirectoryError: the first that is another.
    """
    try:
        for name, facts in records.items() if isinstance(records, Mapping) else ():
            if name != run.metrics.name or _is_as_long(run.metrics, facts):
                check_record(run.path, name, records)
    except ChangedFileError as error:
        remedies = {run.metrics: "", run.evaluation("before"): ", or delete it and resume to play it again"}
        raise RunDirectoryError(f"{error}{remedies.get(error.path, ', or delete it to go on without it')}") from error


def _is_as_long(path: Path, facts: object) -> bool:
    length = facts.get("bytes") if isinstance(facts, Mapping) else None
    return path.is_file() and type(length) is int and path.stat().st_size >= length


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON with its digest (`hgpo.runs.seals`), whole or not at all."""
    write_text(path, json.dumps(sealed(value), indent=2) + "\n", durable=True)


def read_json(path: Path, **hooks: Any) -> dict[str, Any]:
    """The object that `write_json` wrote, or one without a digest that was edited by hand; `hooks` are `json.loads`'s.

    Raises:
        ValueError: it is damaged; the message names the file.
        OSError: it cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), **hooks)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} holds no object")
    return unsealed(path, document)
