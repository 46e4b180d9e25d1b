"""A Hugging Face causal language model with a chat template as a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from hgpo.policies.base import PromptTooLong, Response
from hgpo.policies.device import resolve_device
from hgpo.policies.encoding import PromptEncoder, end_tokens, pad_token
from hgpo.policies.padding import TokenIds, length_buckets
from hgpo.policies.precision import Precision, autocast
from hgpo.policies.sampling import sample_responses

transformers_logging.disable_progress_bar()  # it would write between the lines of a run's own display


class TransformersPolicy:
    """Answers prompts by sampling from `model`; every prompt becomes one user message of the tokenizer's chat template.

    Example::

        policy = TransformersPolicy.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct", max_response_tokens=512)
        [response] = policy.generate(["Say hello."], temperature=1.0, rng=np.random.default_rng(0))

    The model is used as it is at each call: training its parameters in place trains the policy.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_prompt_tokens: int = 4096,
        max_response_tokens: int = 512,
        max_batch_size: int | None = None,
        max_batch_tokens: int = 262_144,
        precision: Precision = "auto",
    ) -> None:
        """`max_batch_size` rows and `max_batch_tokens` (prompt and response, padded) bound the memory of one batch.

        Left open, the batch size is 256 rows on an accelerator and 64 on a CPU, whose caches hold no more. `precision`
        is that of the forward pass, as `TrainingSettings.precision` is in training.

        Raises:
            ValueError: the tokenizer has no chat template or no end token, or the limits exceed the model's positions.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self._encoder = PromptEncoder(tokenizer, max_prompt_tokens)
        self._max_response_tokens = max_response_tokens
        self._max_batch_size = max_batch_size or (64 if model.device.type == "cpu" else 256)
        self._max_batch_tokens = max_batch_tokens
        self._precision = precision
        self._end_tokens = end_tokens(model, tokenizer)
        self._pad_token = pad_token(tokenizer, self._end_tokens)
        _check_limits(model, max_prompt_tokens, max_response_tokens)

    @classmethod
    def from_pretrained(
        cls, path_or_hub_id: str | Path, *, device: str = "auto", dtype: str = "auto", **limits: Any
    ) -> Self:
        """Load a folder (no network needed) or a model of the Hugging Face hub. Only safetensors weights are read.

        `device` "auto" is CUDA where there is one; `dtype` "auto" is bfloat16 on CUDA and float32 elsewhere. Train in
        float32: with small learning rates, bfloat16 weights round every update away. `limits` go to the constructor.
        """
        model, tokenizer = load_pretrained(path_or_hub_id, device=device, dtype=dtype)
        return cls(model, tokenizer, **limits)

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt it takes, chat template included."""
        return self._encoder.max_prompt_tokens

    @property
    def max_response_tokens(self) -> int:
        """Where responses are cut, end token included."""
        return self._max_response_tokens

    @property
    def precision(self) -> Precision:
        """Arithmetic of the forward pass."""
        return self._precision

    def generate(self, prompts: Sequence[str], *, temperature: float, rng: np.random.Generator) -> list[Response]:
        """One response per prompt, in order.

        `rng` gives `max_response_tokens` numbers per prompt whatever the responses; greedy decoding (temperature 0)
        takes none and reports log-probs at temperature 1.

        Raises:
            PromptTooLong: a prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            ValueError: the temperature is negative or not finite.
        """
        if not (0 <= temperature < float("inf")):
            raise ValueError(f"temperature {temperature} is not a finite number >= 0")
        if not prompts:
            return []
        prompt_ids = self.encode_prompts(prompts)
        lengths = [len(ids) for ids in prompt_ids]
        for index, length in enumerate(lengths):
            if length > self.max_prompt_tokens:
                raise PromptTooLong(index=index, tokens=length, limit=self.max_prompt_tokens)
        uniform_BT = rng.random((len(prompts), self._max_response_tokens)) if temperature else None
        responses: dict[int, Response] = {}
        for rows in length_buckets(
            np.asarray(lengths) + self._max_response_tokens,
            max_tokens=self._max_batch_tokens,
            max_rows=self._max_batch_size,
        ):
            uniform = None if uniform_BT is None else uniform_BT[rows]
            batch = [prompt_ids[row] for row in rows]
            responses.update(zip(rows.tolist(), self._respond(batch, uniform, temperature), strict=True))
        return [responses[row] for row in range(len(prompts))]

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def encode_prompts(self, prompts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each prompt as the model sees it, up to where its answer begins."""
        return self._encoder.encode_prompts(prompts)

    def encode_responses(self, responses: Sequence[str]) -> list[TokenIds]:
        """Token ids of each response as the model would write it, end token included."""
        preferred = self.tokenizer.eos_token_id
        return self._encoder.encode_responses(responses, self._end_tokens[0] if preferred is None else preferred)

    def _respond(
        self, prompts: list[TokenIds], uniform_BT: np.ndarray[Any, Any] | None, temperature: float
    ) -> list[Response]:
        with autocast(self.model.device, self._precision):
            sampled = sample_responses(
                self.model,
                prompts,
                uniform_BT=uniform_BT,
                temperature=temperature,
                max_tokens=self._max_response_tokens,
                end_tokens=self._end_tokens,
                pad_token=self._pad_token,
            )
        texts = self._encoder.decode([response.token_ids for response in sampled])
        return [
            Response(text, prompt, response.token_ids, response.log_probs, response.finished)
            for text, prompt, response in zip(texts, prompts, sampled, strict=True)
        ]


def load_pretrained(path_or_hub_id: str | Path, *, device: str = "auto", dtype: str = "auto") -> tuple[Any, Any]:
    """Model (in evaluation mode) and tokenizer; see `TransformersPolicy.from_pretrained`."""
    where = resolve_device(device)
    if dtype == "auto":
        dtype = "bfloat16" if where.type == "cuda" else "float32"
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": Path(path_or_hub_id).is_dir()}
    tokenizer = AutoTokenizer.from_pretrained(path_or_hub_id, **options)
    model = AutoModelForCausalLM.from_pretrained(
        path_or_hub_id, dtype=getattr(torch, dtype), use_safetensors=True, attn_implementation="sdpa", **options
    )
    return model.to(where).eval(), tokenizer


def _check_limits(model: Any, max_prompt_tokens: int, max_response_tokens: int) -> None:
    if max_prompt_tokens < 1 or max_response_tokens < 1:
        raise ValueError(
            f"max_prompt_tokens {max_prompt_tokens} and max_response_tokens {max_response_tokens} must be at least 1"
        )
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and max_prompt_tokens + max_response_tokens > positions:
        raise ValueError(
            f"max_prompt_tokens {max_prompt_tokens} + max_response_tokens {max_response_tokens} exceed the model's "
            f"{positions} positions"
        )
