"""What engines with continuous batching share: a policy that steps an engine while episodes wait for their answers.

An engine writes one token more of every open answer at each step, and takes new prompts between two steps. It is
stepped in the event loop of those who wait, in no thread of its own. So nothing generates while the weights are
trained, an engine that fails fails where its answers are awaited, and the order of the prompts, with it the answers, is
the same in every run. The price: an environment does not move while the engine computes.
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
from hgpo.policies.base import Request, Response, check_temperature
from hgpo.policies.language_model import LanguageModel, check_positions
from hgpo.policies.padding import TokenIds
from hgpo.policies.weights import computes_in_bfloat16


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """A prompt for an engine.

    Attributes:
        prompt_ids: int32, chat template included.
        temperature: 0 is greedy, and then log-probs are those at temperature 1.
        seed: where the draws begin; None for greedy decoding.
    """

    prompt_ids: TokenIds
    temperature: float
    seed: int | None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """A complete response: it has an end token or was cut at the response limit.

    Attributes:
        token_ids: End token included.
        log_probs: Of the tokens, under the distribution they were sampled from.
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


class EngineFailed(RuntimeError):
    """An engine raised an error, given as the cause, while answers were awaited. It answers nothing any more."""


class EnginePolicy:
    """Answers each prompt in its own time through an engine. See `hgpo.policies.base.AsyncPolicy`.

    Many requests may be under way, all in one event loop. A request's own seed decides its draws where the engine keeps
    them apart; see the backends.
    """

    def __init__(self, backend: str, language_model: LanguageModel, engine: Engine) -> None:
        """Put an engine to work.

        Args:
            backend: its name, for messages.
            language_model: how prompts are encoded, what ends an answer, and how long both may be.
            engine: writes with the weights of `language_model.model`.
        """
        self.language_model = language_model
        self._engine = engine
        self._loop = EngineLoop(backend, engine)
        self._end_tokens = frozenset(language_model.end_tokens)

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt it takes, chat template included."""
        return self.language_model.limits.prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """One, which is a seed."""
        return 1

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return self.language_model.encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the weights of `model` from now on.

        Raises:
            RuntimeError: answers are under way, which would be written half with the old weights.
        """
        self._loop.refuse_if_busy()
        self._engine.take_weights(model)

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request; greedy decoding (temperature 0) reports log-probs at temperature 1.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            ValueError: the temperature is negative or not finite, or the request brings no seed to sample by.
            FloatingPointError: the model gave log-probs that are not finite.
            EngineFailed: the engine raised an error, for this request or another.
        """
        check_temperature(temperature)
        seed = request.seed if temperature else None
        if temperature and seed is None:
            raise ValueError("the request brings no numbers to sample by; see `draw_requests`")
        [prompt_ids] = self.language_model.encoder.encode_fitting([request.prompt])
        written = await self._loop.generate(GenerationRequest(prompt_ids, temperature, seed))
        return self._response(prompt_ids, written)

    def _response(self, prompt_ids: TokenIds, written: GenerationOutput) -> Response:
        token_ids = np.asarray(written.token_ids, dtype=np.int32)
        log_probs = np.asarray(written.log_probs, dtype=np.float32)
        if not np.isfinite(log_probs).all():
            raise FloatingPointError("the model gave log-probs that are not finite: its weights are broken")
        [text] = self.language_model.encoder.decode([token_ids])
        return Response(text, prompt_ids, token_ids, log_probs, finished=int(token_ids[-1]) in self._end_tokens)


class EngineLoop:
    """Steps an engine as long as any request waits for its response."""

    def __init__(self, backend: str, engine: Engine) -> None:
        self._backend, self._engine = backend, engine
        self._keys = count()
        self._waiting: dict[str, asyncio.Future[GenerationOutput]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._failure: EngineFailed | None = None

    def refuse_if_busy(self) -> None:
        """Raise a RuntimeError if a request is open."""
        if self._waiting:
            raise RuntimeError(
                f"policy backend {self._backend!r} is given weights while it writes {len(self._waiting)} answers"
            )

    async def generate(self, request: GenerationRequest) -> GenerationOutput:
        """Add a request to the engine and wait for its output; see `EnginePolicy.respond` for the errors."""
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
            if self._waiting.pop(key, None) is not None:  # cancelled, before there was an answer
                self._engine.drop([key])

    async def _step_while_awaited(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # whoever has got an answer asks on before the next step
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
            f"policy backend {self._backend!r} failed with {len(self._waiting)} answers under way "
            f"({type(error).__name__}: {error})"
        )
        self._failure.__cause__ = error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._failure)


def computing_type(language_model: LanguageModel) -> torch.dtype:
    """The type that a forward pass of the trained module computes in: what an engine with its own copy holds it in."""
    model = language_model.model
    low = computes_in_bfloat16(language_model.limits.precision, model.device, model.config)
    return torch.bfloat16 if low else model.dtype


def check_lengths(language_model: LanguageModel) -> int:
    """Most tokens of a prompt with its answer, once the model is known to have positions for them."""
    check_positions(language_model)
    return language_model.limits.prompt_tokens + language_model.limits.response_tokens
