"""verl's checkpoints: their weights published as a checkpoint of this project, so that `hgpo eval` plays either.

verl writes `global_step_<update>/` and then, in place, the update's number into `TRACKER_FILE`, from which it resumes.
Old ones are deleted here, after that and after publishing: verl would delete them before the new one is named, and
knows nothing of those that an earlier process of the run has written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgpo.files import write_text
from hgpo.policies.adapters import CONFIG_FILE
from hgpo.runs.checkpoints import surplus, whole_checkpoint

STATE_NAME = "hgpo.json"
_OF_A_MODEL = ("config.json", "generation_config.json")
TRACKER_FILE = "latest_checkpointed_iteration.txt"


def verl_folder(checkpoints: Path, update: int) -> Path:
    """Where verl keeps the checkpoint of an update."""
    return checkpoints / f"global_step_{update}"


def delete_old_folders(checkpoints: Path, newest: int, keep: int) -> None:
    """Delete all of verl's checkpoints but that of the update `newest` and the `keep` - 1 highest of the others."""
    for folder in surplus(_verl_folders(checkpoints), verl_folder(checkpoints, newest), keep):
        shutil.rmtree(folder)


def mend_tracker(checkpoints: Path) -> None:
    """Write the number that verl resumes from where a process died while verl wrote it, which leaves the file empty.

    By then the newest checkpoint was whole.
    """
    tracker, folders = checkpoints / TRACKER_FILE, _verl_folders(checkpoints)
    if folders and tracker.exists() and not tracker.read_text(encoding="utf-8").strip():
        write_text(tracker, str(_update_of(folders[-1])), durable=True)


def publish(weights: Path, folder: Path, update: int, state: Mapping[str, Any], keep: int) -> None:
    """Make `folder`/<update> from the Hugging Face files in `weights`, whole or not at all; keep the newest.

    `keep` is how many stay. Files are linked where the file system can, else copied. Optimiser and generators stay
    with verl, whose checkpoint is what a run resumes from.
    """
    # Beside an adapter there is no model, and a configuration would say there is.
    left_out = shutil.ignore_patterns(*_OF_A_MODEL) if (weights / CONFIG_FILE).exists() else None
    with whole_checkpoint(folder, update, state, keep) as partial:
        shutil.copytree(weights, partial, copy_function=_link_or_copy, dirs_exist_ok=True, ignore=left_out)


def _verl_folders(checkpoints: Path) -> list[Path]:
    return sorted((path for path in checkpoints.glob("global_step_*") if path.is_dir()), key=_update_of)


def _update_of(folder: Path) -> int:
    return int(folder.name.rsplit("_", 1)[1])


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
