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
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.files import flush, write_text
from hgpo.policies.adapters import (
    BASE_FILE,
    WEIGHTS_FILE,
    Adapter,
    adapter_names,
    add_adapter,
    base_model,
    base_names,
    fingerprint_of,
)
from hgpo.policies.pretrained import refuse_incomplete

_PREFIX = "base_model.model."
_MODEL_FILES = ("model*.safetensors", "model.safetensors.index.json")


def keep_adapter(folder: Path, adapter: Adapter) -> None:
    """Turn verl's folder of a whole model into one of its adapter, as `hgpo.policies.adapters.save_adapter` writes it.

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
