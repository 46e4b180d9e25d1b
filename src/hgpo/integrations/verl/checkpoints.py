"""The adapter in what verl saves of a model with LoRA, as peft and this project know it.

verl writes base and adapter together, under the names of its wrapped modules, into a folder that calls itself a plain
model: transformers would find none of its weights there, and fill every one at random.

    base_model.model.<module>.base_layer.weight      <module>.weight                            of the frozen base
    base_model.model.<module>.lora_A.default.weight  base_model.model.<module>.lora_A.weight    of the adapter

The base is what the run began with, so that the adapter alone is kept. Needs peft.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.config import ConfigError
from hgpo.policies.loading import refuse_incomplete
from hgpo.policies.lora import (
    BASE_FILE,
    CONFIG_FILE,
    WEIGHTS_FILE,
    Adapter,
    adapter_names,
    add_adapter,
    base_model,
    base_names,
    fingerprint_of,
)
from hgpo.runs.checkpoints import surplus, whole_checkpoint
from hgpo.utils.files import flush, write_text

_PREFIX = "base_model.model."
_MODEL_FILES = ("model*.safetensors", "model.safetensors.index.json")


def keep_adapter(folder: Path, adapter: Adapter) -> None:
    """Turn verl's folder of a whole model into one of its adapter, as `hgpo.policies.lora.save_adapter` writes it.

    Done once: a folder that is one already is left as it is, and a process may die at any point of it. `config.json`
    and the tokenizer stay.

    Args:
        folder: verl's `huggingface`.
        adapter: as verl was told to train it.

    Raises:
        IncompleteModelError: a weight of the base or of the adapter is missing, or one is there that the model does not
            know; the message names it.
    """
    if not (folder / BASE_FILE).exists():
        _write_adapter(folder, adapter)
    for pattern in _MODEL_FILES:
        for path in folder.glob(pattern):
            path.unlink()


def _write_adapter(folder: Path, adapter: Adapter) -> None:
    model = _model_on_paper(folder, adapter)
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(path, "pt")) for path in sorted(folder.glob(_MODEL_FILES[0]))]
        stored = {name: file for file in files for name in file.keys()}  # noqa: SIM118, no mapping
        of_adapter = {name.replace(".default.", "."): name for name in stored if ".lora_" in name}
        of_base = {
            name.removeprefix(_PREFIX).replace(".base_layer.", "."): name
            for name in stored.keys() - set(of_adapter.values())
        }
        _check_names(folder, model, of_base, of_adapter)
        tensors = {name: stored[source].get_tensor(source) for name, source in of_adapter.items()}
        weights = ((name, stored[of_base[name]].get_tensor(of_base[name])) for name in sorted(base_names(model)))
        fingerprint = fingerprint_of(weights)
    partial = folder / f".{WEIGHTS_FILE}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    flush(partial)
    os.replace(partial, folder / WEIGHTS_FILE)
    model.peft_config["default"].save_pretrained(folder)
    write_text(folder / BASE_FILE, json.dumps({"weights": fingerprint}), durable=True)  # last: it says all is there


def _model_on_paper(folder: Path, adapter: Adapter) -> Any:
    """What the folder should hold: a model with an adapter, without any numbers."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        return add_adapter(model, adapter, seed=0)


def _check_names(folder: Path, model: Any, of_base: Mapping[str, str], of_adapter: Mapping[str, str]) -> None:
    """Tied weights and buffers may be there or not: they are another weight's, or computed."""
    known = {name.replace(".base_layer.", ".") for name in base_model(model).state_dict()}
    refuse_incomplete(folder, missing=base_names(model) - of_base.keys(), surplus=of_base.keys() - known)
    expected = adapter_names(model)
    refuse_incomplete(folder, missing=expected - of_adapter.keys(), surplus=of_adapter.keys() - expected)


# verl's checkpoints: their weights published as a checkpoint of this project, so that `hgpo eval` plays either.
#
# verl writes `global_step_<update>/` and then, in place, the update's number into `TRACKER_FILE`, from which it
# resumes.
# Old ones are deleted here, after that and after publishing: verl would delete them before the new one is named, and
# knows nothing of those that an earlier process of the run has written.
#
# verl continues from any checkpoint in its folder, and below `$CHECKPOINTS_DIR` the folder's name is only that of the
# experiment, which recipes share. So a run first writes its own path into the folder (`OWNER_FILE`), and the folder
# of
# another run is rejected.


STATE_NAME = "hgpo.json"
_OF_A_MODEL = ("config.json", "generation_config.json")
TRACKER_FILE = "latest_checkpointed_iteration.txt"
OWNER_FILE = "hgpo_run.txt"
_REMEDY = "choose another run.name or CHECKPOINTS_DIR"


def claim(checkpoints: Path, run: Path) -> bool:
    """Write the run's path into `checkpoints`; of two runs that start at once, one succeeds.

    Returns:
        Whether the folder had no owner before.

    Raises:
        ConfigError: names the run that owns the folder.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    path = checkpoints / OWNER_FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{run}\n")
        return True
    except FileExistsError:
        owner = path.read_text(encoding="utf-8").strip()
    if not owner:
        raise ConfigError(f"another run is taking {checkpoints} at this moment, or died at it: then delete {path}")
    if owner != str(run):
        raise ConfigError(
            f"{checkpoints} belongs to the run {owner}: {_REMEDY}. If that run was moved to {run}, write the new path "
            f"into {path}; if it is no more, delete {checkpoints}"
        )
    return False


def claim_empty(checkpoints: Path, run: Path) -> bool:
    """`claim` for a new run: a folder with checkpoints of any run is rejected, too."""
    claimed = claim(checkpoints, run)
    if any(path.name != OWNER_FILE for path in checkpoints.iterdir()):
        if claimed:
            release(checkpoints)
        raise ConfigError(
            f"{checkpoints} holds another run's checkpoints, which this one would continue from: {_REMEDY}, or delete "
            "them"
        )
    return claimed


def release(checkpoints: Path) -> None:
    """Undo `claim`."""
    (checkpoints / OWNER_FILE).unlink()


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
