"""A verl checkpoint's weights as a checkpoint of this project, so that `hgpo eval` plays either."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgpo.training.checkpoint import FORMAT_VERSION, STATE_FILE

STATE_NAME = "hgpo.json"


def verl_folder(checkpoints: Path, update: int) -> Path:
    """Where verl keeps the checkpoint of an update."""
    return checkpoints / f"global_step_{update}"


def publish(weights: Path, folder: Path, update: int, state: Mapping[str, Any], keep: int) -> Path:
    """Make `folder`/<update> from the Hugging Face files in `weights`, whole or not at all; keep the newest.

    `keep` is how many stay. Files are linked where the file system can, else copied. Optimiser and generators stay
    with verl, whose checkpoint is what a run resumes from.
    """
    partial, final = folder / f".{update}.partial", folder / str(update)
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(weights, partial, copy_function=_link_or_copy)
    files = {str(path.relative_to(partial)): path.stat().st_size for path in partial.rglob("*") if path.is_file()}
    document = {"format_version": FORMAT_VERSION, "update": update, "files": files, "state": dict(state)}
    (partial / STATE_FILE).write_text(json.dumps(document, indent=1), encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    numbered = [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]
    older = sorted((path for path in numbered if path != final), key=lambda path: int(path.name))
    for path in older[: max(0, len(older) + 1 - keep)]:
        shutil.rmtree(path)
    return final


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
