"""Checkpoints of the built-in engine: model, tokenizer and optimiser. On a CPU, resuming from them is exact bit for
bit.

    checkpoints/<update>/    model and tokenizer in Hugging Face format (safetensors); of a model with an adapter, only
                             the adapter (`hgpo.policies.weights`)
                             optimizer.safetensors    "<parameter>.exp_avg", ".exp_avg_sq", ".step"
                             critic/    of an estimator with a critic (`hgpo.training.value_model`)

`hgpo.runs.checkpoints` writes the folder completely or not at all. Nothing in it is executable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hgpo.config import TrainingSettings
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.loading import is_adapter, load_model, load_tokenizer, resolve_device
from hgpo.policies.weights import WrongBaseError, check_peft, has_adapter, load_adapter, save_adapter
from hgpo.runs.checkpoints import check_bytes, unusable, whole_checkpoint
from hgpo.training.critic import Critic
from hgpo.training.update import make_optimizer
from hgpo.training.value_model import FOLDER
from hgpo.utils.files import naming

OPTIMIZER_FILE = "optimizer.safetensors"


@dataclass(slots=True)
class TrainingState:
    """The state that training changes and a checkpoint restores.

    Attributes:
        language_model: the trained model.
        optimizer: the model's optimiser, including its moments.
        rollout_rng: all randomness of the rollouts.
        update_rng: shuffles samples.
        update: number of the last complete update; 0: none.
        tasks_drawn: number of training tasks drawn so far.
        seconds: time used by earlier processes of the run, up to their newest checkpoint.
        evaluations: names of the evaluations that the training has made so far.
    """

    language_model: LanguageModel
    optimizer: torch.optim.Optimizer
    rollout_rng: np.random.Generator
    update_rng: np.random.Generator
    update: int = 0
    tasks_drawn: int = 0
    seconds: float = 0.0
    evaluations: set[str] = field(default_factory=set)

    @classmethod
    def initial(cls, language_model: LanguageModel, settings: TrainingSettings, seed: int) -> TrainingState:
        """The state before the first update."""
        rollout_seed, update_seed = np.random.SeedSequence(seed).spawn(2)
        optimizer = make_optimizer(language_model.model, settings)
        return cls(language_model, optimizer, np.random.default_rng(rollout_seed), np.random.default_rng(update_seed))


def save_checkpoint(
    folder: Path, state: TrainingState, *, critic: Critic | None = None, keep: int | None = None
) -> None:
    """Write `folder`/<update> completely or not at all; `hgpo.runs.checkpoints.whole_checkpoint` explains `keep`."""
    model, update = state.language_model.model, state.update
    stored = {
        "tasks_drawn": state.tasks_drawn,
        "seconds": state.seconds,
        "rollout_rng": state.rollout_rng.bit_generator.state,
        "update_rng": state.update_rng.bit_generator.state,
        "evaluations": sorted(state.evaluations),
    }
    with saving(folder / str(update)), whole_checkpoint(folder, update, stored, keep) as partial:
        if has_adapter(model):
            save_adapter(model, partial)
        else:
            model.save_pretrained(partial)
        state.language_model.tokenizer.save_pretrained(partial)
        save_file(_optimizer_tensors(model, state.optimizer), partial / OPTIMIZER_FILE)
        if critic is not None:
            critic.model.save(partial)
            save_file(_optimizer_tensors(critic.model, critic.optimizer), partial / FOLDER / OPTIMIZER_FILE)


@contextmanager
def saving(folder: Path) -> Iterator[None]:
    """Inside the block, disk errors, also those of safetensors, are raised as an `OSError` that names `folder`."""
    try:
        with naming(folder):
            yield
    except SafetensorError as error:
        raise OSError(f"{folder}: {error}") from error


def load_checkpoint(
    path: Path,
    settings: TrainingSettings,
    limits: GenerationLimits | None = None,
    *,
    device: str = "auto",
    base: LanguageModel | None = None,
) -> TrainingState:
    """The state as it was saved; see `open_language_model` for the arguments.

    Learning rate and weight decay come from `settings`, the moments and step counts from the checkpoint.

    Raises:
        CheckpointError: the checkpoint is damaged, or its optimiser state belongs to another model.
        WrongBaseError: the checkpoint's adapter was trained with other base weights than `base`.
    """
    document = check_bytes(path)
    language_model = _open(path, limits, device, base)
    optimizer = make_optimizer(language_model.model, settings)
    _restore_optimizer(path, language_model.model, optimizer)
    stored = document["state"]
    return TrainingState(
        language_model,
        optimizer,
        _restored_generator(stored["rollout_rng"]),
        _restored_generator(stored["update_rng"]),
        document["update"],
        stored["tasks_drawn"],
        stored["seconds"],
        set(stored.get("evaluations", ())),
    )


def _restored_generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator (PCG64, numpy's default) that continues from `rng.bit_generator.state`."""
    bit_generator = np.random.PCG64()
    bit_generator.state = state  # type: ignore[assignment]
    return np.random.Generator(bit_generator)


def restore_critic(path: Path, critic: Critic) -> None:
    """Load a critic's head, target statistics and optimiser moments from the checkpoint `path`, but not its layers.

    Raises:
        CheckpointError: a file is missing, damaged or of another model.
    """
    _readable(path, lambda: critic.model.load_head(path))
    _restore_optimizer(path, critic.model, critic.optimizer, f"{FOLDER}/{OPTIMIZER_FILE}")


def load_critic_layers(path: Path, start: LanguageModel, device: str) -> Any:
    """The layers of a separate critic in the checkpoint `path`; if they are an adapter, it is put on `start`.

    Raises:
        CheckpointError: the layers are missing or damaged.
    """
    place = path / FOLDER
    if not place.is_dir():
        raise unusable(path, "it has no critic, which the run's estimator needs")
    if is_adapter(place):
        return _readable(path, lambda: load_adapter(start.model, place))
    return _readable(path, lambda: load_model(place, device=device, dtype="float32"))


def open_language_model(
    path: Path, limits: GenerationLimits | None = None, *, device: str = "auto", base: LanguageModel | None = None
) -> LanguageModel:
    """The model (float32) and tokenizer without the optimiser; weights are loaded on first use.

    Args:
        path: the checkpoint's folder.
        limits: see `GenerationLimits`.
        device: "auto" is CUDA if available.
        base: the model that the adapter is put on, if the checkpoint contains an adapter.

    Raises:
        CheckpointError: the checkpoint is damaged. (Damaged weights raise it on first use of `LanguageModel.model`.)
        ValueError: the checkpoint contains an adapter, and there is no `base`.
    """
    check_bytes(path, leave_out=[OPTIMIZER_FILE, f"{FOLDER}/"])
    return _open(path, limits, device, base)


def _open(path: Path, limits: GenerationLimits | None, device: str, base: LanguageModel | None) -> LanguageModel:
    resolve_device(device)  # neither a missing device nor a missing package is an error of the checkpoint
    if is_adapter(path):
        check_peft()
        if base is None:
            raise ValueError(f"{path} contains an adapter: pass its base model as `base`")
        return base.changed(lambda model: _readable(path, lambda: load_adapter(model, path)))

    def load() -> Any:
        return _readable(path, lambda: load_model(path, device=device, dtype="float32"))

    return LanguageModel(_readable(path, lambda: load_tokenizer(path)), load, limits or GenerationLimits(), str(path))


def _readable(path: Path, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (WrongBaseError, PermissionError, UnicodeEncodeError, torch.OutOfMemoryError):
        raise  # the checkpoint is not damaged
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise unusable(path, error) from error


def _optimizer_tensors(model: Any, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": value.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(path: Path, model: Any, optimizer: torch.optim.Optimizer, file: str = OPTIMIZER_FILE) -> None:
    try:
        tensors = load_file(path / file)
    except (OSError, SafetensorError) as error:
        raise unusable(path, error, file) from error
    for name, parameter in model.named_parameters():
        # AdamW keeps its step counts on the CPU regardless of the device of the parameter.
        state = {
            key: tensors.pop(f"{name}.{key}").to("cpu" if key == "step" else parameter.device)
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"{name}.{key}" in tensors
        }
        if state and (len(state) != 3 or state["exp_avg"].shape != parameter.shape):
            raise unusable(path, f"the state of {name} does not fit the model", file)
        if state:
            optimizer.state[parameter] = state
    if tensors:
        raise unusable(path, f"it holds {sorted(tensors)[0]}, which the model does not have", file)
