"""Policies behind a server with OpenAI's chat protocol (OpenAI, Gemini, vLLM, llama.cpp, `transformers serve`, …).

Uses the package openai. Responses are untrusted. The key is read from the environment when it is needed and not stored.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hgpo.messages import Conversation, messages_of
from hgpo.policies.base import Request, RequestUsage, Response, check_temperature

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_CHARACTERS = 100_000
"""Longer responses are cut."""
_UNREADABLE_WAIT = 0.5  # seconds before the first retry after an unreadable answer; doubled each time
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_LOG_PROBS = np.empty(0, dtype=np.float32)


class AnswerFailed(RuntimeError):
    """A request failed after all retries. Other requests may succeed."""


class ServerRefused(ValueError):
    """The server rejects every request: wrong model name, key or address."""


@dataclass(frozen=True)
class Server:
    """Address and protocol details of a server.

    Attributes:
        url: base address of the protocol, such as "http://127.0.0.1:8000/v1".
        key_variable: environment variable with the key; without a value, a placeholder is sent.
        timeout: seconds for one try.
        retries: most retries after status 408, 409, 429, a server error, a timeout or a lost connection. Delays grow
            exponentially with jitter, or follow `Retry-After`.
        length_parameter: the server's name for the most tokens of a response: "max_tokens", or
            "max_completion_tokens" for OpenAI's reasoning models.
        sends_seed: whether requests contain their seed.
        extra: further fields of every request's body, such as `{"reasoning_effort": "low"}`.
    """

    url: str
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 120.0
    retries: int = 8
    length_parameter: str = "max_tokens"
    sends_seed: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def connection(self) -> dict[str, Any]:
        """Keywords of openai's clients, with the key from the environment."""
        return {
            "api_key": os.environ.get(self.key_variable) or "none",
            "base_url": self.url,
            "timeout": self.timeout,
            "max_retries": self.retries,
        }


class ServerPolicy:
    """An `AsyncPolicy` that sends prompts to a server, which limits their length itself."""

    max_prompt_tokens: int | None = None
    numbers_per_response = 1  # a seed

    def __init__(self, server: Server, model: str, *, max_response_tokens: int, system_prompt: str = "") -> None:
        """Set up the policy without contacting the server.

        Args:
            server: the server.
            model: name of the model on the server.
            max_response_tokens: most tokens of a response.
            system_prompt: a system message before every prompt; empty: none.

        Raises:
            ValueError: the package openai is not installed.
        """
        if missing := missing_client():
            raise ValueError(missing)
        self.server, self.model = server, model
        self._max_response_tokens = max_response_tokens
        self._before = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._answered = False
        self._client: tuple[asyncio.AbstractEventLoop, AsyncOpenAI] | None = None
        self._closing: asyncio.Task[None] | None = None  # the loop has only a weak reference

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """An estimate, a quarter of the characters: only the server has the tokenizer."""
        return [sum(len(message.text) for message in messages_of(prompt)) // 4 + 1 for prompt in prompts]

    def take_weights(self, model: Any) -> None:
        """Nothing to do: the server has its own weights."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request.

        Raises:
            AnswerFailed: the request failed after all retries.
            ServerRefused: the server rejects every request.
            ValueError: the temperature is negative or not finite.
        """
        check_temperature(temperature)
        body = self.body(request, temperature)
        tries = 0
        for unreadable in range(self.server.retries + 1):
            began = time.perf_counter()
            completion, tried = await self._send(body)
            tries += tried
            if completion is not None:
                return self.read(completion, tries, time.perf_counter() - began)
            await asyncio.sleep(min(_UNREADABLE_WAIT * 2**unreadable, 8.0))
        raise AnswerFailed(f"{tries} answers of the server were unreadable")

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """Keywords of the client's `chat.completions.create`."""
        messages = [{"role": one.role, "content": one.text} for one in messages_of(request.prompt)]
        extra: dict[str, Any] = {self.server.length_parameter: self._max_response_tokens, **self.server.extra}
        if temperature and self.server.sends_seed and request.seed is not None:
            extra["seed"] = request.seed % 2**31  # the most that some servers accept
        return {
            "model": self.model,
            "messages": [*self._before, *messages],
            "temperature": temperature,
            "extra_body": extra,
        }

    async def _send(self, body: Mapping[str, Any]) -> tuple[Any, int]:
        """The completion, or None if the answer is unreadable, and the number of requests sent."""
        import openai

        try:
            raw = await self._connected().chat.completions.with_raw_response.create(**body)
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise ServerRefused(f"{self.server.url} does not serve {self.model!r}: {reason(error)}") from error
        except openai.APIResponseValidationError:
            return None, 1
        except openai.APIConnectionError as error:
            if not self._answered:
                raise ServerRefused(f"{self.server.url} cannot be reached: {reason(error)}") from error
            raise AnswerFailed(reason(error)) from error
        except openai.OpenAIError as error:
            raise AnswerFailed(reason(error)) from error
        try:
            completion = raw.parse()
            whole = completion.choices and completion.choices[0].message
            return (completion if whole else None), raw.retries_taken + 1
        except (ValueError, AttributeError, TypeError, openai.APIResponseValidationError):  # invalid or truncated JSON
            return None, raw.retries_taken + 1

    def read(self, completion: Any, requests: int, seconds: float) -> Response:
        """A completion as a response."""
        self._answered = True
        choice = completion.choices[0]
        text = getattr(choice.message, "content", None)
        usage = completion.usage
        return Response(
            text=text[:MAX_CHARACTERS] if isinstance(text, str) else "",
            prompt_ids=_NO_TOKENS,
            token_ids=_NO_TOKENS,
            log_probs=_NO_LOG_PROBS,
            finished=getattr(choice, "finish_reason", None) != "length",
            usage=RequestUsage(
                prompt_tokens=getattr(usage, "prompt_tokens", None) or 0,
                response_tokens=getattr(usage, "completion_tokens", None) or 0,
                requests=requests,
                seconds=seconds,
            ),
        )

    def _connected(self) -> AsyncOpenAI:
        """The client of the running event loop; its connections are bound to the loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = (loop, AsyncOpenAI(**self.server.connection()))
            self._closing = loop.create_task(_close_at_the_end(self._client[1]))
        return self._client[1]


async def _close_at_the_end(client: AsyncOpenAI) -> None:
    """Close the client when `asyncio.run` cancels remaining tasks, before the loop is closed."""
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()


def server_policy(model: str, options: Mapping[str, Any], **usage: Any) -> ServerPolicy:
    """A policy for evaluation with a server; `options` are the fields of `Server`.

    Raises:
        ValueError: an unknown option, a missing `url`, or openai is not installed.
    """
    try:
        server = Server(**options)
    except TypeError as error:
        raise ValueError(f"policy.options of a server: {error}") from error
    return ServerPolicy(server, model, **usage)


def missing_client() -> str | None:
    """What to install to use servers, in a sentence; None if nothing is missing."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        return f'servers need the package openai: pip install "hgpo[server]" ({error})'
    return None


def reason(error: Exception) -> str:
    """The error in at most about 300 characters; the server's message may have any length."""
    cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
    return f"{type(error).__name__}: {' '.join(f'{error}{cause}'.split())[:300]}"
