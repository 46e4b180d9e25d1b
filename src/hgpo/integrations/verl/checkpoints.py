"""Publishes verl's checkpoints as checkpoints of this project, so that `hgpo eval` works for both engines.

**Order.** verl writes `global_step_<update>/`, and then the update's number to `TRACKER_FILE`, from which it resumes.
Old folders are deleted here, after publishing. verl would delete them before it writes the number, and would not
delete those of an earlier process of the run.

**LoRA.** The ranks write only the adapter (`hgpo.integrations.verl.engine.save_checkpoint`). Its base is the start
policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgpo.policies.loading import is_adapter
from hgpo.runs.checkpoints import CheckpointError, numbered, surplus, whole_checkpoint
from hgpo.utils.files import delete_folder, write_text

STATE_NAME = "hgpo.json"
TRACKER_FILE = "latest_checkpointed_iteration.txt"
_OF_A_MODEL = ("config.json", "generation_config.json")


def verl_folder(checkpoints: Path, update: int) -> Path:
    """verl's folder of the checkpoint of an update."""
    return checkpoints / f"global_step_{update}"


def delete_old_folders(checkpoints: Path, newest: int, keep: int) -> None:
    """Delete verl's checkpoints except that of the update `newest` and the `keep` - 1 highest of the others."""
    for folder in surplus(_verl_folders(checkpoints), verl_folder(checkpoints, newest), keep):
        delete_folder(folder)


def repair_tracker(checkpoints: Path) -> None:
    """If the tracker file is empty, since a process died while writing it, write the newest checkpoint's number."""
    tracker, folders = checkpoints / TRACKER_FILE, _verl_folders(checkpoints)
    if folders and tracker.exists() and not tracker.read_text(encoding="utf-8").strip():
        write_text(tracker, str(_update_of(folders[-1])), durable=True)


def require_newest(checkpoints: Path, published: Path, updates: int) -> None:
    """Reject a run whose newest checkpoint verl lacks, or is of an update after `updates`, the last one.

    verl would begin at the first update without a message, or train nothing and end. `published` holds the checkpoints
    of `publish_weights`, which verl has recorded in its tracker file before.

    Raises:
        CheckpointError: names the missing folder and what to do.
    """
    tracker, kept = checkpoints / TRACKER_FILE, numbered(published)
    recorded = tracker.read_text(encoding="utf-8").strip() if tracker.exists() else ""
    newest = checkpoints / f"global_step_{recorded}"
    if (recorded and not newest.is_dir()) or (kept and not tracker.exists()):
        missing = newest if recorded else tracker
        new = f" with policy.model={kept[-1]}" if kept else ""
        raise CheckpointError(f"{missing} is missing: restore it from a copy, or start a new run{new}")
    if recorded and int(recorded) > updates:
        raise CheckpointError(
            f"training.updates = {updates}, and {newest} is of update {recorded}: set it to at least {recorded} in "
            "config.toml"
        )


def publish_weights(weights: Path, folder: Path, update: int, state: Mapping[str, Any], keep: int) -> None:
    """Make `folder`/<update> from the Hugging Face files in `weights`, atomically; keep the `keep` newest.

    Files are hard links if the file system supports them, else copies. The state of optimiser and generators stays in
    verl's checkpoint, from which a run resumes.
    """
    # A folder with an adapter and a model's configuration would look like a whole model.
    left_out = shutil.ignore_patterns(*_OF_A_MODEL) if is_adapter(weights) else None
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
