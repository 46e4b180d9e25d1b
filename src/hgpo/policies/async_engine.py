"""`EnginePolicy`: an asynchronous policy for engines with continuous batching.

An engine generates one token of every open response at each step, and accepts new requests between steps. It runs in
the event loop of the callers, without a separate thread. Therefore nothing is generated during training, errors reach
the callers, and the order of requests, and with it the responses, is the same in every run. On the other hand,
environments do not step while the engine computes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np
import torch

from hgpo.messages import Conversation
from hgpo.policies.base import Request, Response, TokenIds, check_temperature
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.weights import computes_in_bfloat16


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """A prompt for an engine.

    Attributes:
        prompt_ids: int32, chat template included.
        temperature: 0 is greedy decoding, with log-probs at temperature 1.
        seed: seed of the random generator; None for greedy decoding.
    """

    prompt_ids: TokenIds
    temperature: float
    seed: int | None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """A complete response: it has an end token or was cut at the response limit.

    Attributes:
        token_ids: the tokens, end token included.
        log_probs: log-probs of the tokens, under the distribution they were sampled from.
    """

    token_ids: Sequence[int]
    log_probs: Sequence[float]


class Engine(Protocol):
    """Generates many responses at once, one token of each per step."""

    def add(self, key: str, request: GenerationRequest) -> None:
        """Add a request; nothing is computed yet."""
        ...

    def step(self) -> dict[str, GenerationOutput]:
        """Generate one more token of every open response; return the responses that this step completed, by key."""
        ...

    def drop(self, keys: Sequence[str]) -> None:
        """Cancel requests."""
        ...

    def take_weights(self, model: Any) -> None:
        """Generate with the weights of `model` from now on; no request is open."""
        ...

    def release_memory(self) -> None:
        """Free weights and cache until `take_weights`, if the engine can; no request is open."""
        ...


class EngineFailed(RuntimeError):
    """An engine raised an error, given as the cause. All open and later requests fail."""


class EnginePolicy:
    """An `AsyncPolicy` that generates with an engine. All requests must be in one event loop."""

    def __init__(self, backend: str, language_model: LanguageModel, engine: Engine) -> None:
        """Set up the policy.

        Args:
            backend: name of the backend, for messages.
            language_model: encoder, end tokens and limits.
            engine: generates with the weights of `language_model.model`.
        """
        self.language_model = language_model
        self._backend, self._engine = backend, engine
        self._end_tokens = frozenset(language_model.end_tokens)
        self._keys = count()
        self._waiting: dict[str, asyncio.Future[GenerationOutput]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._failure: EngineFailed | None = None

    @property
    def max_prompt_tokens(self) -> int:
        """Most tokens of a prompt, chat template included."""
        return self.language_model.limits.prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """One number, which gives the seed."""
        return 1

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return self.language_model.encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model` from now on.

        Raises:
            RuntimeError: a request is open.
        """
        self._refuse_open_requests("take weights")
        self._engine.take_weights(model)

    def release_memory(self) -> None:
        """Free the memory of the engine until `take_weights`, if it can.

        Raises:
            RuntimeError: a request is open.
        """
        self._refuse_open_requests("free its memory")
        self._engine.release_memory()

    def _refuse_open_requests(self, what: str) -> None:
        if self._waiting:
            raise RuntimeError(
                f"policy backend {self._backend!r} cannot {what} while requests are open ({len(self._waiting)})"
            )

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request; greedy decoding (temperature 0) reports log-probs at temperature 1.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            ValueError: the temperature is negative or not finite, or the request has no seed.
            FloatingPointError: log-probs are not finite.
            EngineFailed: the engine raised an error, for this request or another.
        """
        check_temperature(temperature)
        seed = request.seed if temperature else None
        if temperature and seed is None:
            raise ValueError("the request has no random numbers for sampling; see `draw_requests`")
        [prompt_ids] = self.language_model.encoder.encode_fitting([request.prompt])
        written = await self._generate(GenerationRequest(prompt_ids, temperature, seed))
        return self._response(prompt_ids, written)

    def _response(self, prompt_ids: TokenIds, written: GenerationOutput) -> Response:
        token_ids = np.asarray(written.token_ids, dtype=np.int32)
        log_probs = np.asarray(written.log_probs, dtype=np.float32)
        if not np.isfinite(log_probs).all():
            raise FloatingPointError("the model returned non-finite log-probs: check its weights for NaN or inf")
        encoder = self.language_model.encoder
        [text], finished = encoder.decode([token_ids]), int(token_ids[-1]) in self._end_tokens
        return Response(text, prompt_ids, token_ids, log_probs, finished, in_thought=encoder.opens_thought)

    async def _generate(self, request: GenerationRequest) -> GenerationOutput:
        """Add a request to the engine and wait for its output."""
        if self._failure is not None:  # the state of an engine after an error is undefined
            raise self._failure
        loop = asyncio.get_running_loop()
        key = str(next(self._keys))
        self._engine.add(key, request)
        self._waiting[key] = loop.create_future()
        if self._stepping is None or self._stepping.done():
            self._stepping = loop.create_task(self._step_while_awaited())
        try:
            return await self._waiting[key]
        finally:
            if self._waiting.pop(key, None) is not None:  # cancelled before the response was complete
                self._engine.drop([key])

    async def _step_while_awaited(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # callers with a response add their next request before the next step
            try:
                written = self._engine.step()
            except Exception as error:
                self._fail(error)
                return
            for key, answer in written.items():
                waiting = self._waiting.pop(key, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self._failure = EngineFailed(
            f"policy backend {self._backend!r} failed with {len(self._waiting)} open responses "
            f"({type(error).__name__}: {error})"
        )
        self._failure.__cause__ = error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._failure)


def computing_type(language_model: LanguageModel) -> torch.dtype:
    """The data type in which a forward pass of the trained module computes."""
    model = language_model.model
    low = computes_in_bfloat16(language_model.limits.precision, model.device, model.config)
    return torch.bfloat16 if low else model.dtype
