"""The weights of a model: LoRA adapters with the library peft, merged weights for samplers that copy them, and the
arithmetic of forward passes.

    y = x W + (alpha / rank) · x A B,   W frozen, A [in, rank] random, B [rank, out] zero at first

A new adapter does not change the model. Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models",
section 4.1.

    <folder>/    adapter_config.json, adapter_model.safetensors    peft's own format
                 adapter_base.json                                 fingerprint of the frozen weights
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn import Dropout

from hgpo.policies.loading import refuse_incomplete

BASE_FILE = "adapter_base.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_BASES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # fingerprints of the frozen weights, by model
Precision = Literal["auto", "float32", "bfloat16"]
_WIDE_ENOUGH = 256  # hidden size from which bfloat16 is faster on a CPU: docs/decisions/013-bfloat16-on-cpus.md
_NATIVE = ("amx_bf16", "avx512_bf16")


class WrongBaseError(ValueError):
    """An adapter was trained with other frozen weights."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Settings of an adapter.

    Attributes:
        rank: number of columns of A.
        alpha: the adapter's output is scaled by alpha / rank.
        dropout: share of an adapter's inputs that is zeroed in gradient steps.
        targets: names of the modules with an adapter; "all-linear" is every linear one except the head.
    """

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: str | Sequence[str] = "all-linear"


def check_peft() -> None:
    """Raise a `ValueError` with a remedy if peft is not installed."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise ValueError(f'policy.lora needs the package peft: pip install "hgpo[lora]" ({error})') from error


def add_adapter(model: Any, adapter: Adapter, *, seed: int) -> Any:
    """Freeze the weights of `model`, add a new float32 adapter, and return the PEFT model.

    Args:
        model: a causal language model.
        adapter: settings of the adapter.
        seed: seed for the random values of the adapter's matrices A.

    Raises:
        ValueError: no module has one of the target names, or peft is not installed.
    """
    check_peft()
    from peft import LoraConfig, get_peft_model

    targets = adapter.targets if isinstance(adapter.targets, str) else list(adapter.targets)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return get_peft_model(model, config).eval()
        except ValueError as error:
            raise ValueError(f"policy.lora.targets = {targets!r}: {error}") from error


def save_adapter(
    model: Any,
    folder: Path,
    *,
    whole: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight,
    write: bool = True,
) -> None:
    """Write the adapter of `model` and the fingerprint of its frozen weights.

    Args:
        model: a PEFT model.
        folder: the folder for the adapter's files.
        whole: gathers a weight that is sharded over ranks; all ranks must then call `save_adapter`.
        write: whether this rank writes.
    """
    adapter = {name: whole(weight) for name, weight in model.state_dict().items() if ".lora_" in name}
    if model not in _BASES:
        _BASES[model] = fingerprint(model, whole)
    if not write:
        return
    # Without the first setting, peft asks the hub about the vocabulary.
    model.save_pretrained(folder, save_embedding_layers=False, state_dict=adapter)
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card
    (folder / BASE_FILE).write_text(json.dumps({"weights": _BASES[model]}), encoding="utf-8")


def load_adapter(base: Any, folder: Path) -> Any:
    """`base` with the adapter in `folder`, trainable.

    Raises:
        WrongBaseError: the adapter was trained with other frozen weights.
        IncompleteModelError: weights of the adapter are missing or unexpected.
        ValueError: the adapter is damaged, or peft is not installed.
    """
    check_peft()
    from peft import PeftModel
    from safetensors import safe_open

    try:
        wanted = str(json.loads((folder / BASE_FILE).read_text(encoding="utf-8"))["weights"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / BASE_FILE}: {type(error).__name__}: {error}") from error
    if (found := fingerprint(base)) != wanted:
        raise WrongBaseError(
            f"the adapter in {folder} was trained with other weights (fingerprint {wanted[:12]}) than those of "
            f"{getattr(base.config, '_name_or_path', '') or 'the model'} ({found[:12]}): restore the model that the "
            "run started with"
        )
    model = PeftModel.from_pretrained(base, str(folder), is_trainable=True).eval()
    with safe_open(folder / WEIGHTS_FILE, "pt") as file:
        _refuse_other_names(folder, set(file.keys()), model)  # peft only warns
    return model


def set_adapter(model: Any, weights: Mapping[str, torch.Tensor]) -> None:
    """Replace the weights of an adapter; `adapter_names` returns their names.

    Raises:
        IncompleteModelError: a name is missing or unknown.
    """
    from peft import set_peft_model_state_dict

    _refuse_other_names("the adapter", weights.keys(), model)
    set_peft_model_state_dict(model, dict(weights))


def adapter_names(model: Any) -> set[str]:
    """The names of an adapter's weights as peft stores them."""
    from peft import get_peft_model_state_dict

    return set(get_peft_model_state_dict(model, save_embedding_layers=False))


def _refuse_other_names(source: object, found: Set[str], model: Any) -> None:
    known = adapter_names(model)
    refuse_incomplete(source, missing=known - found, surplus=found - known)


def has_adapter(model: Any) -> bool:
    """Whether `model` was made by `add_adapter` or `load_adapter`."""
    if "peft" not in sys.modules:  # peft was never imported, so no model has an adapter
        return False
    from peft import PeftModel

    return isinstance(model, PeftModel)


def adapter_rank(model: Any) -> int:
    """The rank of the model's adapter; 0 without one."""
    return int(model.peft_config[model.active_adapter].r) if has_adapter(model) else 0


def base_model(model: Any) -> Any:
    """The module of transformers, without peft's wrapper; adapters stay inside."""
    return model.get_base_model() if has_adapter(model) else model


def adapter_off(model: Any) -> AbstractContextManager[Any]:
    """In the context, `model` computes without its adapter, if it has one."""
    off: AbstractContextManager[Any] = model.disable_adapter() if has_adapter(model) else nullcontext()
    return off


@contextmanager
def adapter_dropout(model: Any, rng: np.random.Generator) -> Iterator[None]:
    """In the context, the adapter uses dropout, with a seed from `rng`; an adapter without dropout draws no seed.

    Outside of the context there is no dropout, so that sampling and log-probs use the same function.
    """
    dropouts = [
        module for name, module in model.named_modules() if ".lora_dropout." in name and isinstance(module, Dropout)
    ]
    if not dropouts:
        yield
        return
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(int(rng.integers(2**63)))
        for module in dropouts:
            module.train()
        try:
            yield
        finally:
            for module in dropouts:
                module.eval()


def merge_adapter(model: Any) -> Any:
    """A plain model in float32 that computes the same as `model`, whose adapter is merged in place; bfloat16 would
    round a part of the adapter away.

    If the adapter changes the embeddings or an output layer tied to them, the output layer gets weights of its own.
    """
    if not has_adapter(model):
        return model
    base = base_model(model.float())
    head = base.get_output_embeddings()
    if head is not None and not shares_head(model):
        head = getattr(head, "base_layer", head)
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        untie(base.config)
    return model.merge_and_unload()


def shares_head(model: Any) -> bool:
    """Whether embeddings and output layer still share one weight after adapters are merged.

    A configuration may claim this for a model that is stored with two weights.
    """
    base = base_model(model)
    ends = base.get_input_embeddings(), base.get_output_embeddings()
    if None in ends or any(hasattr(end, "base_layer") for end in ends):
        return False
    return ends[0].weight is ends[1].weight


def untie(config: Any) -> None:
    """Set a configuration of transformers to separate weights of embeddings and output layer."""
    for part in (config, config.get_text_config()):
        part.tie_word_embeddings = False


def fingerprint(model: Any, whole: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight) -> str:
    """SHA-256 of the frozen weights in the order of their names; `whole` as for `save_adapter`.

    Weights are rounded to bfloat16, so that the type in which the model was loaded does not matter.
    """
    digest = hashlib.sha256()
    parameters = base_model(model).named_parameters()
    for name, weight in sorted((_plain(name), weight) for name, weight in parameters if ".lora_" not in name):
        digest.update(name.encode())
        digest.update(whole(weight).detach().to("cpu", torch.bfloat16).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain(name: str) -> str:
    """A weight's name as in a model without an adapter; peft wraps experts in one layer for each adapted weight."""
    return name.replace(".base_layer", "")


def merged_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a causal language model, with adapters merged.

    Tied weights come once, under the name that the module lists first; with an adapter on one of them, under each name
    (`shares_head`). Tensors without an adapter are the module's own; do not write to them. With a LoRA adapter
    of peft, a weight is W + ΔW, computed lazily in the wider of both types. Base and adapter do not change: merging in
    place and unmerging would not restore a bfloat16 base.
    """
    base = base_model(model)
    adapted = {
        f"{_plain(name)}.{getattr(module, 'parameter_name', 'weight')}": module
        for name, module in base.named_modules()
        if hasattr(module, "base_layer")
    }
    kept: dict[int, str] = {}  # name by tensor id, which tied names share
    for stored, tensor in base.state_dict(keep_vars=True).items():
        if ".lora_" in stored:
            continue
        name = _plain(stored)
        first = kept.setdefault(id(tensor), name)
        if first != name and name not in adapted and first not in adapted:
            continue
        yield name, _merged(tensor, adapted[name]) if name in adapted else tensor.detach()


@torch.no_grad()
def _merged(weight: torch.Tensor, layer: Any) -> torch.Tensor:
    deltas = [layer.get_delta_weight(adapter) for adapter in layer.active_adapters]
    return sum(deltas, start=weight.detach())


def cast(model: Any, dtype: torch.dtype) -> Any:
    """Convert the weights of `model` in place, as if it had been loaded in `dtype`, and return the model.

    Buffers that are not stored with the weights keep their type: rotary frequencies in bfloat16 have an error of up to
    0.4 %, which shifts positions thousands of tokens into a prompt.
    """
    computed = [
        (module, name, module._buffers[name])
        for module in model.modules()
        for name in module._non_persistent_buffers_set & module._buffers.keys()
    ]
    model.to(dtype)
    for module, name, buffer in computed:
        module._buffers[name] = buffer
    return model


def restore_rotary(model: Any) -> None:
    """Recompute the float32 frequencies of rotary embeddings in place, after the whole model was cast."""
    for module in model.modules():
        frequencies = {  # Gemma 3 has some for each kind of layer
            name: buffer for name, buffer in module.named_buffers(recurse=False) if name.endswith("inv_freq")
        }
        if any(buffer.dtype != torch.float32 for buffer in frequencies.values()) and hasattr(module, "config"):
            for name, buffer in type(module)(module.config).named_buffers(recurse=False):
                setattr(module, name, buffer)


def autocast(model: Any, precision: Precision) -> torch.autocast:
    """A context in which `model` computes in bfloat16 or in its weights' type; see `computes_in_bfloat16`.

    The type of the weights does not change: float32 weights keep updates that bfloat16 weights would round away.
    """
    device = model.device
    low = computes_in_bfloat16(precision, device, model.config)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=low)


def computes_in_bfloat16(precision: Precision, device: torch.device, config: Any) -> bool:
    """Whether a model computes in bfloat16.

    "auto" is bfloat16 on CUDA, and on a CPU with bfloat16 instructions if the model is wide enough; else float32.

    Args:
        precision: the setting.
        device: the model's device.
        config: the model's configuration (transformers).
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return True
    wide = config.get_text_config().hidden_size >= _WIDE_ENOUGH
    return bool(wide and device.type == "cpu" and cpu_has_bfloat16())


def cpu_has_bfloat16() -> bool:
    """Whether the processor has bfloat16 instructions; False if PyTorch is too old to know."""
    capabilities: Callable[[], Mapping[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)
    found = capabilities()
    return any(found.get(name, False) for name in _NATIVE)
