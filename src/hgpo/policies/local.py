"""The backend "transformers": samples from the trained module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from hgpo.messages import Conversation
from hgpo.policies.backends import Backend
from hgpo.policies.base import Request, Response, TokenIds, check_temperature
from hgpo.policies.cache import length_buckets
from hgpo.policies.chat import pad_token
from hgpo.policies.language_model import LanguageModel, check_positions
from hgpo.policies.sampler import sample_responses
from hgpo.policies.weights import autocast

Most = Annotated[int, Field(ge=1)]
_CPU_ROWS, _ACCELERATOR_ROWS = 64, 256  # larger batches do not fit a CPU's caches
_CPU_TOKENS, _ACCELERATOR_TOKENS = 65_536, 262_144


def batch_limits(
    device: torch.device, max_batch_size: int | None = None, max_batch_tokens: int | None = None
) -> tuple[int, int]:
    """Most rows and most padded tokens of one batch; None is the device's default."""
    on_cpu = device.type == "cpu"
    rows = max_batch_size or (_CPU_ROWS if on_cpu else _ACCELERATOR_ROWS)
    return rows, max_batch_tokens or (_CPU_TOKENS if on_cpu else _ACCELERATOR_TOKENS)


class TransformersPolicy:
    """Samples responses from a language model.

    Example:
        policy = TransformersPolicy(LanguageModel.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct"))
        requests = draw_requests(["Say hello."], policy, np.random.default_rng(0), temperature=1.0)
        [response] = policy.generate(requests, temperature=1.0)

    Training the parameters of the model in place trains the policy.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        max_batch_size: Most | None = None,
        max_batch_tokens: Most | None = None,
    ) -> None:
        """Check the model and set the limits of a batch.

        Args:
            language_model: the model to sample from.
            max_batch_size: most rows; None: 256 on an accelerator and 64 on a CPU.
            max_batch_tokens: most padded tokens of prompts and responses; None: 262,144 on an accelerator and 65,536
                on a CPU.

        Raises:
            ValueError: the limits exceed the model's positions, or no end token is known.
        """
        check_positions(language_model)
        self.language_model = language_model
        self.max_prompt_tokens = language_model.limits.prompt_tokens
        self.numbers_per_response = language_model.limits.response_tokens  # one for each token
        self._max_batch_size, self._max_batch_tokens = batch_limits(
            language_model.model.device, max_batch_size, max_batch_tokens
        )
        self._end_tokens = language_model.end_tokens
        self._pad_token = pad_token(language_model.tokenizer, self._end_tokens)

    def take_weights(self, model: Any) -> None:
        """Does nothing, because the policy samples from the trained module."""

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return self.language_model.encoder.count_prompt_tokens(prompts)

    def generate(self, requests: Sequence[Request], *, temperature: float) -> list[Response]:
        """One response per request, in order.

        The request's number t decides token t; greedy decoding (temperature 0) needs no numbers and reports log-probs
        at temperature 1.

        Raises:
            PromptTooLong: a prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            ValueError: the temperature is negative or not finite.
        """
        check_temperature(temperature)
        if not requests:
            return []
        prompts = self.language_model.encoder.encode_fitting([request.prompt for request in requests])
        responses: dict[int, Response] = {}
        for rows in length_buckets(
            np.asarray([len(ids) for ids in prompts]) + self.numbers_per_response,
            max_tokens=self._max_batch_tokens,
            max_rows=self._max_batch_size,
        ):
            batch = [prompts[row] for row in rows]
            uniform_BT = _uniform_numbers([requests[row] for row in rows]) if temperature else None
            responses.update(zip(rows.tolist(), self._respond(batch, uniform_BT, temperature), strict=True))
        return [responses[row] for row in range(len(requests))]

    def _respond(
        self, prompts: list[TokenIds], uniform_BT: np.ndarray[Any, Any] | None, temperature: float
    ) -> list[Response]:
        model, limits = self.language_model.model, self.language_model.limits
        with autocast(model, limits.precision):
            sampled = sample_responses(
                model,
                prompts,
                uniform_BT=uniform_BT,
                temperature=temperature,
                max_tokens=limits.response_tokens,
                end_tokens=self._end_tokens,
                pad_token=self._pad_token,
            )
        encoder = self.language_model.encoder
        texts, thinks = encoder.decode([response.token_ids for response in sampled]), encoder.opens_thought
        return [
            Response(text, prompt, response.token_ids, response.log_probs, response.finished, in_thought=thinks)
            for text, prompt, response in zip(texts, prompts, sampled, strict=True)
        ]


def _uniform_numbers(requests: Sequence[Request]) -> np.ndarray[Any, Any]:
    """The requests' numbers, float64[B, T]."""
    missing = next((index for index, request in enumerate(requests) if request.uniform_T is None), None)
    if missing is not None:
        raise ValueError(f"request {missing} has no random numbers for sampling; see `draw_requests`")
    return np.stack([request.uniform_T for request in requests])  # type: ignore[misc]  # none is None


BACKEND = Backend(TransformersPolicy)
