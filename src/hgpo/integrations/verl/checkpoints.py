"""verl's checkpoints, published as checkpoints of this project, so that `hgpo eval` plays those of either engine.

**Order.** verl writes `global_step_<update>/` and then, in place, the update's number into `TRACKER_FILE`, from which
it resumes. Old folders are deleted here, after publishing: verl would delete them before it writes the number, and
does not know the folders of an earlier process of the run.

**LoRA.** The ranks write the adapter alone (`hgpo.integrations.verl.engine.save_checkpoint`): its base is the start
policy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgpo.policies.weights import CONFIG_FILE
from hgpo.runs.checkpoints import surplus, whole_checkpoint
from hgpo.utils.files import write_text

STATE_NAME = "hgpo.json"
TRACKER_FILE = "latest_checkpointed_iteration.txt"
_OF_A_MODEL = ("config.json", "generation_config.json")


def verl_folder(checkpoints: Path, update: int) -> Path:
    """verl's folder of the checkpoint of an update."""
    return checkpoints / f"global_step_{update}"


def delete_old_folders(checkpoints: Path, newest: int, keep: int) -> None:
    """Delete verl's checkpoints except that of the update `newest` and the `keep` - 1 highest of the others."""
    for folder in surplus(_verl_folders(checkpoints), verl_folder(checkpoints, newest), keep):
        shutil.rmtree(folder)


def repair_tracker(checkpoints: Path) -> None:
    """Fill an empty tracker file, left by a process that died while verl wrote it, after the newest checkpoint."""
    tracker, folders = checkpoints / TRACKER_FILE, _verl_folders(checkpoints)
    if folders and tracker.exists() and not tracker.read_text(encoding="utf-8").strip():
        write_text(tracker, str(_update_of(folders[-1])), durable=True)


def publish(weights: Path, folder: Path, update: int, state: Mapping[str, Any], keep: int) -> None:
    """Make `folder`/<update> from the Hugging Face files in `weights`, atomically; keep the `keep` newest.

    Files are linked if the file system can, else copied. Optimiser and generators stay in verl's checkpoint, from which
    a run resumes.
    """
    # With a configuration, a folder that has only an adapter would look like a model's.
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
