"""A causal language model with its tokenizer: what is trained, whatever plays it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from hgpo.policies.device import resolve_device
from hgpo.policies.encoding import PromptEncoder, end_tokens
from hgpo.policies.padding import TokenIds
from hgpo.policies.precision import Precision

transformers_logging.disable_progress_bar()  # it would write between the lines of a run's own display


@dataclass(frozen=True, slots=True)
class Limits:
    """How a language model is used.

    Attributes:
        prompt_tokens: the longest prompt, chat template included.
        response_tokens: where responses are cut, end token included.
        precision: arithmetic of the forward pass, the same for sampling and for training.

    Example: `Limits(prompt_tokens=4096, response_tokens=512)`.
    """

    prompt_tokens: int = 4096
    response_tokens: int = 512
    precision: Precision = "auto"


class LanguageModel:
    """A Hugging Face model and tokenizer with the limits they are used within.

    The weights are loaded when `model` is first asked for: a policy that has its own copy of them never does.

    Attributes:
        tokenizer: one of transformers', with a chat template.
        limits: see `Limits`.
        source: folder or hub name that the weights come from; empty for a model that was built here.
        encoder: prompts and responses as tokens.
    """

    def __init__(self, tokenizer: Any, load: Callable[[], Any], limits: Limits, source: str = "") -> None:
        """`load` returns the torch module.

        Raises:
            ValueError: the tokenizer has no chat template.
        """
        self.tokenizer, self.limits, self.source = tokenizer, limits, source
        self.encoder = PromptEncoder(tokenizer, limits.prompt_tokens)
        self._load = load

    @classmethod
    def of(cls, model: Any, tokenizer: Any, limits: Limits | None = None) -> Self:
        """Around a model that is there already."""
        return cls(tokenizer, lambda: model, limits or Limits())

    @classmethod
    def from_pretrained(
        cls, path_or_hub_id: str | Path, limits: Limits | None = None, *, device: str = "auto", dtype: str = "auto"
    ) -> Self:
        """From a folder (no network needed) or the Hugging Face hub. Only safetensors weights are read.

        `device` "auto" is CUDA where there is one; `dtype` "auto" is bfloat16 on CUDA and float32 elsewhere. Train in
        float32: with small learning rates, bfloat16 weights round every update away.
        """
        source = str(path_or_hub_id)
        resolve_device(device)  # one that is not there is refused at once
        tokenizer = load_tokenizer(source)
        return cls(tokenizer, lambda: load_model(source, device=device, dtype=dtype), limits or Limits(), source)

    @cached_property
    def model(self) -> Any:
        """The torch module, in evaluation mode."""
        return self._load().eval()

    @cached_property
    def end_tokens(self) -> list[int]:
        """All tokens that end a turn, ascending."""
        return end_tokens(self.model, self.tokenizer)

    def encode_responses(self, responses: Sequence[str]) -> list[TokenIds]:
        """Token ids of each response as the model would write it, end token included."""
        preferred = self.tokenizer.eos_token_id
        return self.encoder.encode_responses(responses, self.end_tokens[0] if preferred is None else preferred)


def load_tokenizer(path_or_hub_id: str | Path) -> Any:
    """The tokenizer in a folder or of the hub; no code that comes with it is run."""
    return AutoTokenizer.from_pretrained(path_or_hub_id, **_options(path_or_hub_id))


def load_model(path_or_hub_id: str | Path, *, device: str = "auto", dtype: str = "auto") -> Any:
    """The model in a folder or of the hub, in evaluation mode; see `LanguageModel.from_pretrained`."""
    where = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if where.type == "cuda" else "float32"
    model = AutoModelForCausalLM.from_pretrained(
        path_or_hub_id,
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        attn_implementation="sdpa",
        **_options(path_or_hub_id),
    )
    return model.to(where).eval()


def check_limits(language_model: LanguageModel) -> None:
    """Refuse limits that the model has no positions for, with a `ValueError`."""
    model, limits = language_model.model, language_model.limits
    prompt, response = limits.prompt_tokens, limits.response_tokens
    if prompt < 1 or response < 1:
        raise ValueError(f"max_prompt_tokens {prompt} and max_response_tokens {response} must be at least 1")
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and prompt + response > positions:
        raise ValueError(
            f"max_prompt_tokens {prompt} + max_response_tokens {response} exceed the model's {positions} positions"
        )


def _options(path_or_hub_id: str | Path) -> dict[str, Any]:
    return {"trust_remote_code": False, "local_files_only": Path(path_or_hub_id).is_dir()}
