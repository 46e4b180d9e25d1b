"""Models behind a server that speaks OpenAI's chat protocol: OpenAI's own, Gemini's compatible one, vLLM, llama.cpp,
`transformers serve` and many more. The client is the package openai's.

Texts that come back are untrusted. The key is read from the environment when it is needed, and kept nowhere else.
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
"""Of a response; a server that says more is cut there."""
_UNREADABLE_WAIT = 0.5  # seconds before the first repetition of a request whose answer made no sense; doubled each time
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_LOG_PROBS = np.empty(0, dtype=np.float32)


class AnswerFailed(RuntimeError):
    """One request got no answer after all repetitions. Other requests may."""


class ServerRefused(ValueError):
    """The server will answer no request as they are asked: wrong model name, key or address."""


@dataclass(frozen=True)
class Server:
    """Where a model is served, and how patiently it is asked.

    Attributes:
        url: base address of the protocol, such as "http://127.0.0.1:8000/v1".
        key_variable: environment variable that holds the key; where there is none, a word stands in for it.
        timeout: seconds that one try may take.
        retries: repetitions of a request that met 408, 409, 429, a server error, silence or a broken connection. The
            client waits longer each time, by chance a little less, and as long as `Retry-After` says where that is
            given.
        length_parameter: what the server calls the most tokens of a response: "max_tokens", or
            "max_completion_tokens" for OpenAI's reasoning models.
        sends_seed: whether requests carry their seed; a server that keeps to it gives the same answers again.
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
        """Keywords of openai's clients. The key comes from the environment, each time it is needed."""
        return {
            "api_key": os.environ.get(self.key_variable) or "none",
            "base_url": self.url,
            "timeout": self.timeout,
            "max_retries": self.retries,
        }


class ServerPolicy:
    """Answers each prompt through a server. See `hgpo.policies.base.AsyncPolicy`.

    How long a prompt may be is the server's business: `max_prompt_tokens` is None.
    """

    max_prompt_tokens: int | None = None
    numbers_per_response = 1  # a seed

    def __init__(self, server: Server, model: str, *, max_response_tokens: int, system_prompt: str = "") -> None:
        """Nothing is asked yet.

        Args:
            server: where and how.
            model: its name there.
            max_response_tokens: where responses are cut.
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
        self._closing: asyncio.Task[None] | None = None  # a loop alone would let it go

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Characters over four: a rough figure, since only the server knows."""
        return [sum(len(message.text) for message in messages_of(prompt)) // 4 + 1 for prompt in prompts]

    def take_weights(self, model: Any) -> None:
        """The server has its own."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request.

        Raises:
            AnswerFailed: the server gave no answer to this request, and the reason.
            ServerRefused: it answers none.
            ValueError: the temperature is negative or not finite.
        """
        check_temperature(temperature)
        asked = self.body(request, temperature)
        tries = 0
        for unreadable in range(self.server.retries + 1):
            began = time.perf_counter()
            completion, tried = await self._ask(asked)
            tries += tried
            if completion is not None:
                return self.read(completion, tries, time.perf_counter() - began)
            await asyncio.sleep(min(_UNREADABLE_WAIT * 2**unreadable, 8.0))
        raise AnswerFailed(f"{tries} answers of the server made no sense")

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """What is sent, as keywords of the client's `chat.completions.create`."""
        messages = [{"role": one.role, "content": one.text} for one in messages_of(request.prompt)]
        extra: dict[str, Any] = {self.server.length_parameter: self._max_response_tokens, **self.server.extra}
        if temperature and self.server.sends_seed and request.seed is not None:
            extra["seed"] = request.seed % 2**31  # some servers take no larger ones
        return {
            "model": self.model,
            "messages": [*self._before, *messages],
            "temperature": temperature,
            "extra_body": extra,
        }

    async def _ask(self, asked: Mapping[str, Any]) -> tuple[Any, int]:
        """A completion, None where what came back is none; and how many requests were sent."""
        import openai

        try:
            raw = await self._connected().chat.completions.with_raw_response.create(**asked)
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
        except (ValueError, AttributeError, TypeError, openai.APIResponseValidationError):  # half a JSON, or none
            return None, raw.retries_taken + 1

    def read(self, completion: Any, requests: int, seconds: float) -> Response:
        """What came back."""
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
        """The client of the running event loop: its connections belong to one, and end with it."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = (loop, AsyncOpenAI(**self.server.connection()))
            self._closing = loop.create_task(_close_at_the_end(self._client[1]))
        return self._client[1]


async def _close_at_the_end(client: AsyncOpenAI) -> None:
    """Wait to be cancelled, which is what `asyncio.run` does to all that is left; later the loop would be closed."""
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()


def server_policy(model: str, options: Mapping[str, Any], **usage: Any) -> ServerPolicy:
    """A policy that asks the server that `options` describe (`Server`'s fields), for playing alone.

    Raises:
        ValueError: an option is not known, `url` is missing, or the client is not installed.
    """
    try:
        server = Server(**options)
    except TypeError as error:
        raise ValueError(f"policy.options of a server: {error}") from error
    return ServerPolicy(server, model, **usage)


def missing_client() -> str | None:
    """What has to be installed before a server can be asked, in a sentence; None: nothing."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        return f'servers are asked with the package openai: pip install "hgpo[server]" ({error})'
    return None


def reason(error: Exception) -> str:
    """What went wrong, short enough for a table; a body may be of any length."""
    cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
    return f"{type(error).__name__}: {' '.join(f'{error}{cause}'.split())[:300]}"
