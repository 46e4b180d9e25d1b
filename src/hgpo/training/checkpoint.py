"""Checkpoints that are either complete or absent, and from which training continues bit for bit (on a CPU).

    checkpoints/<update>/    model and tokenizer in Hugging Face format (safetensors)
                             optimizer.safetensors    "<parameter>.exp_avg", ".exp_avg_sq", ".step"
                             trainer_state.json       update, the caller's state, and the size of every other file

A checkpoint is written to a hidden sibling folder, flushed to disk and renamed. Nothing in it is executable.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgpo.config import TrainingSettings
from hgpo.files import flush
from hgpo.policies.device import resolve_device
from hgpo.policies.language_model import LanguageModel, Limits, load_model, load_tokenizer
from hgpo.training.update import make_optimizer

STATE_FILE = "trainer_state.json"
OPTIMIZER_FILE = "optimizer.safetensors"
FORMAT_VERSION = 1

logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What `load_checkpoint` brings back. `state` is what the caller gave `save_checkpoint`."""

    path: Path
    update: int
    language_model: LanguageModel
    optimizer: torch.optim.Optimizer
    state: dict[str, Any]


def save_checkpoint(
    folder: Path | str,
    update: int,
    *,
    model: Any,
    tokenizer: Any,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    keep: int | None = None,
) -> Path:
    """Write `folder`/<update>, replacing one of the same number, and delete all but the newest `keep` where given.

    `state` is anything JSON can hold: generator states (see `hgpo.runs.generators`), counters, settings.

    Raises:
        TypeError, ValueError: `state` is not JSON, or holds NaN. Nothing is written then.
    """
    folder = Path(folder)
    json.dumps(dict(state), allow_nan=False)
    partial = folder / f".{update}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # left by a run that died while writing
    partial.mkdir(parents=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    save_file(_optimizer_tensors(model, optimizer), partial / OPTIMIZER_FILE)
    files = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
    document = {"format_version": FORMAT_VERSION, "update": update, "files": files, "state": dict(state)}
    (partial / STATE_FILE).write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")
    final = folder / str(update)
    _publish(partial, final)
    if keep is not None:
        _delete_old(folder, final, keep)
    return final


def newest_complete(folder: Path | str) -> Path | None:
    """The complete checkpoint with the highest update, or None. Damaged ones are skipped with a logged warning."""
    for path in sorted(_numbered(Path(folder)), key=lambda path: int(path.name), reverse=True):
        try:
            read_trainer_state(path)
        except CheckpointError as error:
            logger.warning("checkpoint skipped: %s", error)
        else:
            return path
    return None


def read_trainer_state(path: Path | str) -> dict[str, Any]:
    """Contents of `trainer_state.json`, after checking that every file it lists is there in full.

    Raises:
        CheckpointError: a file is missing, cut short or unreadable.
    """
    path = Path(path)
    try:
        document = json.loads((path / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unusable(path / STATE_FILE, error) from error
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise _unusable(path / STATE_FILE, f"not a trainer state of format_version {FORMAT_VERSION}")
    if missing := {"update", "files", "state"} - document.keys():
        raise _unusable(path / STATE_FILE, f"{min(missing)} is missing")
    for name, size in document["files"].items():
        found = (path / name).stat().st_size if (path / name).is_file() else None
        if found != size:
            raise _unusable(path / name, "missing" if found is None else f"{found} bytes instead of {size}")
    return document


def load_checkpoint(
    path: Path | str, settings: TrainingSettings, limits: Limits | None = None, *, device: str = "auto"
) -> Checkpoint:
    """Model (float32), tokenizer and optimiser as they were saved.

    Learning rate and weight decay come from `settings`, the moments and step counts from the checkpoint.

    Raises:
        CheckpointError: it is damaged, or its optimiser state belongs to another model.
    """
    path = Path(path)
    language_model = open_language_model(path, limits, device=device)
    document = read_trainer_state(path)
    optimizer = make_optimizer(language_model.model, settings)
    _restore_optimizer(path / OPTIMIZER_FILE, language_model.model, optimizer)
    return Checkpoint(path, document["update"], language_model, optimizer, document["state"])


def open_language_model(path: Path | str, limits: Limits | None = None, *, device: str = "auto") -> LanguageModel:
    """The model (float32) and tokenizer alone, which is all that playing needs; weights are loaded on first use.

    Raises:
        CheckpointError: the checkpoint is damaged; so does `LanguageModel.model` where the weights are.
    """
    path = Path(path)
    resolve_device(device)  # one that is not there is no fault of the checkpoint
    read_trainer_state(path)

    def load() -> Any:
        return _readable(path, lambda: load_model(path, device=device, dtype="float32"))

    return LanguageModel(_readable(path, lambda: load_tokenizer(path)), load, limits or Limits(), str(path))


def _readable(path: Path, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _unusable(path, error) from error


def _optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(path: Path, model: Any, optimizer: torch.optim.Optimizer) -> None:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _unusable(path, error) from error
    for name, parameter in model.named_parameters():
        # AdamW keeps its step counts on the CPU whatever the device of the parameter.
        state = {
            key: tensors.pop(f"{name}.{key}").to("cpu" if key == "step" else parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"{name}.{key}" in tensors
        }
        if state and (len(state) != 3 or state["exp_avg"].shape != parameter.shape):
            raise _unusable(path, f"the state of {name} does not fit the model")
        if state:
            optimizer.state[parameter] = state
    if tensors:
        raise _unusable(path, f"it holds {sorted(tensors)[0]}, which the model does not have")


def _publish(partial: Path, final: Path) -> None:
    for path in [*_files(partial), partial]:
        flush(path)
    replaced = final.with_name(f".{final.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if final.exists():
        final.rename(replaced)
    partial.rename(final)
    flush(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _delete_old(folder: Path, newest: Path, keep: int) -> None:
    older = sorted((path for path in _numbered(folder) if path != newest), key=lambda path: int(path.name))
    for path in older[: max(0, len(older) + 1 - keep)]:
        shutil.rmtree(path)


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _unusable(path: Path, problem: object) -> CheckpointError:
    return CheckpointError(
        f"{path}: {problem}. Delete the checkpoint folder {path if path.is_dir() else path.parent} "
        "to go on from the one before it."
    )
