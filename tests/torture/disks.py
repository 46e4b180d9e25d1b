"""Disks that are full or read-only: an error that names a file, and with room again the same result.

A limit on the size of files fails a write as a full disk does. Where this process may mount, there are real full disks,
and real read-only ones, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from torture.invoking import Invocation, Limits
from torture.kills import carried_out
from torture.outcomes import Outcome
from torture.specimen import WRITERS, Command, Specimen, make_specimen

_LARGEST = 200_000  # bytes; no file of a specimen but the report is larger


def disks(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One command on one bad disk, then on a good one."""
    specimen = make_specimen(folder.parent / "specimen")
    kinds = [limited_files, *([full_disk, read_only_disk] if _may_mount(folder) else [])]
    while True:
        yield rng.choice(kinds)(specimen, rng.choice(WRITERS), folder / "case", rng)


def limited_files(specimen: Specimen, command: Command, folder: Path, rng: Random) -> Outcome:
    """No file may grow beyond some size."""
    cwd = specimen.copy_for(command, folder)
    limit = int(_LARGEST ** rng.random())
    return _then_with_room(
        specimen, command, cwd, command.run(cwd, Limits(file_bytes=limit)), f"files up to {limit} bytes"
    )


def full_disk(specimen: Specimen, command: Command, folder: Path, rng: Random) -> Outcome:
    """A small disk that holds the run and little more."""
    source = specimen.copy_for(command, folder)
    spare = int(400_000 ** rng.random())
    size = sum(path.stat().st_size + 4096 for path in source.rglob("*")) + 8192 + spare
    with _mounted(folder.with_name("disk"), f"size={size}") as disk:
        if not _copied(source, disk / "case"):
            return Outcome("same", "the disk is too small for the run itself")
        invocation = command.run(disk / "case")
        shutil.rmtree(source)
        shutil.copytree(disk / "case", source)
    return _then_with_room(specimen, command, source, invocation, f"{spare} bytes of room")


def read_only_disk(specimen: Specimen, command: Command, folder: Path, rng: Random) -> Outcome:
    """Nothing can be written, and this is found before anything is played."""
    source = specimen.copy_for(command, folder)
    with _mounted(folder.with_name("disk"), "size=64m") as disk:
        _copied(source, disk / "case")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        invocation = command.run(disk / "case")
    return _then_with_room(specimen, command, source, invocation, "a read-only disk")


def _then_with_room(specimen: Specimen, command: Command, cwd: Path, invocation: Invocation, how: str) -> Outcome:
    case = f"{command.name} on {how}"
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    if invocation.status and not any(name in invocation.err for name in _named(command)):
        return Outcome("failed", case, f"no file is named: {invocation.text[-500:]}")
    after = carried_out(specimen, command, cwd, case)
    return Outcome("error", case) if after.kind == "same" and invocation.status else after


def _named(command: Command) -> list[str]:
    """Names of which an error has to have one: of what is written, or of the folder that it is in."""
    parts = [part.removesuffix(".json") for name in command.writes for part in name.split("/")]
    return [*parts, "checkpoints", "start", "config.toml", "games"]


def _may_mount(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    try:
        with _mounted(folder / "trial", "size=64k"):
            return True
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def _copied(source: Path, target: Path) -> bool:
    try:
        shutil.copytree(source, target)
    except (OSError, shutil.Error):
        return False
    return True
