"""Training runs that a benchmark starts, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hgpo.runs.folder import RunDirectory

HGPO = [sys.executable, "-W", "ignore", "-m", "hgpo", "train"]


def train(
    folder: Path, name: str, recipe: Path, options: Sequence[str], *, seconds: float | None = None
) -> RunDirectory:
    """Train run `name` in `folder`, with a log file next to it. A finished run is kept, an interrupted one continued.

    After `seconds` the training is killed, so the run may be incomplete: see `RunDirectory.complete`.
    """
    print(f"{name}: hgpo train {recipe} {' '.join(options)}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    log_file = folder / f"{name}.log"
    with log_file.open("a") as log:
        command = [*HGPO, str(recipe), f"run.directory={folder}", f"run.name={name}", *options, "--continue"]
        try:
            status = subprocess.run(command, check=False, stdout=log, stderr=log, timeout=seconds).returncode
        except subprocess.TimeoutExpired:
            status = 0
    if status:
        last_lines = "\n".join(log_file.read_text(errors="replace").splitlines()[-5:])
        raise SystemExit(f"{name} ended with status {status}; the end of {log_file}:\n{last_lines}")
    return RunDirectory(folder / name)
