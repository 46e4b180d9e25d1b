"""verl's critic worker with this project's head: zero at the start, trained beside adapters, rescaled with its targets.

    value of a token = score(last hidden state), normalised (`hgpo.training.value_model.ReturnScale`)

verl 0.9.1 itself requires FlashAttention whatever the settings, initialises the head at random, and supports LoRA only
for causal language models. Every process of a run loads this module. Needs verl.
"""

from __future__ import annotations

from typing import Any

import torch
import verl.utils.model as model_utils
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForTokenClassification
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.py_functional import convert_to_regular_types
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

HEAD = "score"
"""The name of the head in transformers' classes for one label per token."""


def load_value_model(local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool) -> Any:
    """The layers of a language model with a scalar head of zeros; the attention is that of `model_config`."""
    model = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    for parameter in getattr(model, HEAD).parameters():
        torch.nn.init.zeros_(parameter)
    return model


class ValueEngine(FSDPEngineWithValueHead):  # type: ignore[misc]
    """verl's engine of a critic, whose head is trained as a whole beside adapters."""

    def _build_lora_module(self, module: Any) -> Any:
        module.enable_input_require_grads()
        settings = self.model_config
        lora = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            target_modules=convert_to_regular_types(settings.target_modules),
            exclude_modules=[HEAD],
            bias="none",
        )
        adapted = get_peft_model(module, lora)
        for parameter in getattr(adapted.get_base_model(), HEAD).parameters():
            parameter.requires_grad_(True)
        return adapted


class CriticWorker(TrainingWorker):  # type: ignore[misc]
    """verl's worker, whose head follows the scale of its targets."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def rescale_head(self, factor: float, shift: float) -> None:
        """Change every normalised value to `factor` * value + `shift`."""
        module = self.engine.module
        head = getattr(module.get_base_model() if hasattr(module, "get_base_model") else module, HEAD)
        with torch.no_grad():
            head.weight.mul_(factor)
            head.bias.mul_(factor).add_(shift)

    def _postprocess_output(self, output: dict[str, Any], **facts: Any) -> Any:
        """Values in float32, in which they are also written back as old values: a column has one type."""
        found = output.get("model_output", {})
        if "values" in found:
            found["values"] = found["values"].float()
        return super()._postprocess_output(output, **facts)


model_utils.load_valuehead_model = load_value_model
for _device in ("cuda", "cpu"):
    EngineRegistry._engines["value_model"]["fsdp2"][_device] = ValueEngine
