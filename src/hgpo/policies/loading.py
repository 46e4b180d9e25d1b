"""Devices, weights and tokenizers: from a folder, a .gguf file or the Hugging Face hub. No downloaded code is run.

transformers fills missing weights at random and ignores surplus ones with a warning; here both are errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

transformers_logging.disable_progress_bar()  # they would break the display of a run

ADAPTER_CONFIG = "adapter_config.json"
_MOST_NAMES = 5
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is CUDA if available, else the CPU.

    Raises:
        ValueError: PyTorch has no such device, or the device has no float64, which sampling needs.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # the latter where PyTorch was built without CUDA
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f'policy.device: PyTorch has no device "{name}" here ({reason}); use "auto" or "cpu"'
        ) from error
    if device.type == "mps":
        raise ValueError(f'device "{name}" has no float64, which sampling needs; use "cpu"')
    return device


class IncompleteModelError(ValueError):
    """A model lacks weights or has surplus ones; the message names them."""


def check_source(source: str | Path, *, revision: str | None = None) -> Any:
    """Check that a model exists, without loading weights.

    Returns:
        The model's tokenizer; None for a .gguf file, whose tokenizer takes as long to load as the weights.

    Raises:
        ValueError: no such folder, file or hub name, or a folder without weights.
    """
    _, options = _locate(source, revision)
    folder = Path(source)
    if folder.is_dir():
        for needed in ("config.json", "*.safetensors"):
            if not any(folder.glob(needed)):
                raise ValueError(f"no such model: {source} has no {needed}: it is incomplete or not a model's folder")
        for index in folder.glob("*.safetensors.index.json"):
            shards = set(re.findall(r'"([^"/]+\.safetensors)"', index.read_text(encoding="utf-8")))
            if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
                raise ValueError(f"{source} has no {', '.join(missing)}, which {index.name} lists: it is incomplete")
    try:
        load_model_config(source, revision=revision)
        return None if "gguf_file" in options else load_tokenizer(source, revision=revision)
    except OSError as error:
        reason = str(error).splitlines()[0].removeprefix(f"{source} is not a folder here, and ")
        where = "" if folder.exists() else ": no such folder exists"
        raise ValueError(f"no such model: {source}{where} ({reason})") from error


def load_tokenizer(source: str | Path, *, revision: str | None = None) -> Any:
    """The tokenizer of a model; see `load_model` for the arguments and errors."""
    name, options = _locate(source, revision)
    with _errors_with_source(source, options):
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        if "gguf_file" in options:  # transformers reads the start-of-turn token as the end token
            ends = AutoConfig.from_pretrained(name, **options).eos_token_id
            if isinstance(ends, int):
                tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends)
        return tokenizer


def load_model_config(source: str | Path, *, revision: str | None = None) -> Any:
    """The configuration of a model; see `load_model` for the arguments and errors."""
    name, options = _locate(source, revision)
    with _errors_with_source(source, options):
        return AutoConfig.from_pretrained(name, **options)


def load_model(
    source: str | Path, *, revision: str | None = None, device: str = "auto", dtype: str = "auto"
) -> torch.nn.Module:
    """A causal language model in evaluation mode.

    Args:
        source: a folder (no network needed), a .gguf file, which is dequantised, or a hub name.
        revision: branch, tag or commit of a hub name.
        device: see `resolve_device`.
        dtype: type of the weights; "auto" is bfloat16 on CUDA and float32 elsewhere.

    Raises:
        IncompleteModelError: weights are missing, surplus or of another shape.
        ValueError: an unusable source (revision without a hub name, missing .gguf file or package to read it, adapter
            without its model, damaged file) or an unknown device.
        OSError: transformers finds nothing to load.
    """
    where = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if where.type == "cuda" else "float32"
    name, options = _locate(source, revision)
    weights = {} if "gguf_file" in options else {"use_safetensors": True}
    with _errors_with_source(source, options):
        model, found = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=getattr(torch, dtype),
            attn_implementation=None,  # PyTorch's where the model supports it, whatever its config.json names
            ignore_mismatched_sizes=True,  # rejected by name below
            output_loading_info=True,
            **weights,
            **options,
        )
    misshapen = [key if isinstance(key, str) else key[0] for key in found["mismatched_keys"]]
    refuse_incomplete(source, missing=found["missing_keys"], surplus=found["unexpected_keys"], misshapen=misshapen)
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None):
        model.set_attn_implementation("eager")  # PyTorch's attention ignores the cap (Gemma 2)
    model.to(where).eval()
    return model  # type: ignore[no-any-return]


def refuse_incomplete(
    source: object, *, missing: Collection[str], surplus: Collection[str], misshapen: Collection[str] = ()
) -> None:
    """Raise an `IncompleteModelError` if any name is given."""
    problems = [
        f"{what} {', '.join(sorted(names)[:_MOST_NAMES])}"
        + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
        for what, names in (
            ("lacks the weights", missing),
            ("has weights that the model does not know:", surplus),
            ("has weights of another shape:", misshapen),
        )
        if names
    ]
    if problems:
        raise IncompleteModelError(
            f"{source} {' and '.join(problems)}; it is damaged, or its config.json belongs to another model"
        )


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter; this project writes none that holds a whole model as well."""
    return (folder / ADAPTER_CONFIG).is_file()


def _locate(source: str | Path, revision: str | None) -> tuple[str, dict[str, Any]]:
    """The folder or hub name, and the keywords for transformers."""
    path = Path(source)
    if is_adapter(path) and not (path / "config.json").is_file():
        raise ValueError(f"{source} contains an adapter without its model: merge both with hgpo export --merge")
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
    is_gguf = path.suffix.lower() == ".gguf"
    if revision is not None and (is_gguf or path.is_dir()):
        raise ValueError(f"policy.revision = {revision!r} needs a hub name, but {source} is on this machine: remove it")
    if is_gguf:
        if not path.is_file():
            raise ValueError(f"no such file: {source}")
        return str(path.parent), {**options, "gguf_file": path.name}
    if path.is_dir():
        return str(source), options
    if not _HUB_NAME.fullmatch(str(source)):
        raise ValueError(f"no such model: {source} is not a folder or .gguf file on this machine, and not a hub name")
    return str(source), {**options, "local_files_only": False, **({} if revision is None else {"revision": revision})}


@contextmanager
def _errors_with_source(source: object, options: Mapping[str, Any]) -> Iterator[None]:
    """In the context, errors name the model, or the packages that a .gguf file needs; transformers prints nothing."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    except OSError as error:
        if error.errno is not None or str(source) in str(error):
            raise
        problem = " ".join(str(error).split())
        raise OSError(f"{source} is not a folder here, and cannot be loaded from the hub: {problem}") from error
    except (ValueError, ImportError, MemoryError, torch.OutOfMemoryError) as error:
        if "gguf_file" not in options or not any(package in str(error) for package in ("gguf>", "accelerate")):
            if type(error) is not ValueError or str(source) in str(error):
                raise
            raise ValueError(f"{source} cannot be loaded: {' '.join(str(error).split())}") from error
        raise ValueError(
            f'a .gguf file needs the packages gguf and accelerate: pip install "hgpo[gguf]" ({error})'
        ) from error
    except Exception as error:  # e.g. KeyError, RecursionError, or a bare Exception of the tokenizers
        problem = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{source} cannot be loaded ({type(error).__name__}: {problem}); a file in it is damaged or not a model's"
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
