"""Two repairs to verl 0.9.1's FSDP2 engine, made in every process of a run. Needs verl.

1. The fused kernels read `lm_head.weight` without calling `lm_head`, and FSDP2 gathers a separately wrapped head only
   when it is called: with untied embeddings (Qwen2.5-7B) the first pass ends in "got mixed torch.Tensor and DTensor".
   The head is left to the outermost unit, which is gathered through the whole pass, as it is where it is tied.
2. A model that is loaded in bfloat16 (`ref.fsdp_config.model_dtype`) is cast as a whole, with it the frequencies of its
   rotary embeddings, by up to 0.4 %: thousands of tokens into a prompt the reference sees other positions than the
   policy. They are computed again in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import verl.utils.fsdp_utils as fsdp_utils
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

_HEAD = "lm_head"
_select_wrap_targets = fsdp_utils._select_fsdp2_wrap_targets
_build_module = FSDPEngine._build_module


def leave_fused_head_to_root(model: Any, layers: list[str]) -> list[Any]:
    """The modules that FSDP2 wraps one by one: not the head where fused kernels read its weight."""
    targets: list[Any] = _select_wrap_targets(model, layers)
    if getattr(model, "_verl_fused_kernels_backend", None) is None:
        return targets
    heads = {id(module) for name, module in model.named_modules() if name.rpartition(".")[2] == _HEAD}
    return [module for module in targets if id(module) not in heads]


def restore_rotary(model: Any) -> None:
    """Rotary embeddings of a model that was cast get their float32 frequencies back, in place."""
    for module in model.modules():
        cast = getattr(module, "inv_freq", None)
        if isinstance(cast, torch.Tensor) and cast.dtype != torch.float32 and hasattr(module, "config"):
            for name, buffer in type(module)(module.config).named_buffers(recurse=False):
                setattr(module, name, buffer)


def build_module(engine: Any) -> Any:
    """What the engine builds, with its rotary embeddings in float32."""
    model = _build_module(engine)
    restore_rotary(model)
    return model


fsdp_utils._select_fsdp2_wrap_targets = leave_fused_head_to_root
FSDPEngine._build_module = build_module
