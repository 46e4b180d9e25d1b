"""verl's checkpoints, published as checkpoints of this project, so that `hgpo eval` plays those of either engine.

**Order.** verl writes `global_step_<update>/` and then, in place, the update's number into `TRACKER_FILE`, from which
it resumes. Old folders are deleted here, after publishing: verl would delete them before it writes the number, and
does not know the folders of an earlier process of the run.

**LoRA.** verl saves base and adapter together, under the names of its wrapped modules, as a plain model, in which
transformers would find none of its weights. The base is the start policy, so only the adapter is kept:

    base_model.model.<module>.base_layer.weight      <module>.weight                            of the frozen base
    base_model.model.<module>.lora_A.default.weight  base_model.model.<module>.lora_A.weight    of the adapter
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

from hgpo.policies.loading import refuse_incomplete
from hgpo.policies.weights import (
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

STATE_NAME = "hgpo.json"
TRACKER_FILE = "latest_checkpointed_iteration.txt"
_PREFIX = "base_model.model."
_MODEL_FILES = ("model*.safetensors", "model.safetensors.index.json")
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


def keep_adapter(folder: Path, adapter: Adapter) -> None:
    """Turn verl's folder of a whole model into one of its adapter, as `hgpo.policies.weights.save_adapter` writes it.

    Idempotent, and safe if the process dies at any point. `config.json` and the tokenizer stay.

    Args:
        folder: verl's `huggingface`.
        adapter: the adapter that verl trains.

    Raises:
        IncompleteModelError: names the weights of base or adapter that are missing or unknown.
    """
    if not (folder / BASE_FILE).exists():
        _write_adapter(folder, adapter)
    for pattern in _MODEL_FILES:
        for path in folder.glob(pattern):
            path.unlink()


def _write_adapter(folder: Path, adapter: Adapter) -> None:
    model = _model_without_weights(folder, adapter)
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(path, "pt")) for path in sorted(folder.glob(_MODEL_FILES[0]))]
        stored = {name: file for file in files for name in file.keys()}  # noqa: SIM118, not a mapping
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
    write_text(folder / BASE_FILE, json.dumps({"weights": fingerprint}), durable=True)  # marks the folder as complete


def _model_without_weights(folder: Path, adapter: Adapter) -> Any:
    """The model with its adapter, on the meta device."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        return add_adapter(model, adapter, seed=0)


def _check_names(folder: Path, model: Any, of_base: Mapping[str, str], of_adapter: Mapping[str, str]) -> None:
    """Tied weights and buffers may be stored or not."""
    known = {name.replace(".base_layer.", ".") for name in base_model(model).state_dict()}
    refuse_incomplete(folder, missing=base_names(model) - of_base.keys(), surplus=of_base.keys() - known)
    expected = adapter_names(model)
    refuse_incomplete(folder, missing=expected - of_adapter.keys(), surplus=of_adapter.keys() - expected)
