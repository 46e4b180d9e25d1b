"""Policies behind a server with OpenAI's chat protocol (OpenAI, Gemini, vLLM, llama.cpp, `transformers serve`, …).

Uses the package openai. Responses are untrusted. The key is read from the environment when it is needed and not stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from hgpo.messages import Conversation, encodable, messages_of, without_thoughts
from hgpo.options import converted_options
from hgpo.policies.base import (
    NO_LOG_PROBS,
    NO_TOKENS,
    AnswerFailed,
    ContextFull,
    Request,
    RequestUsage,
    Response,
    check_temperature,
)
from hgpo.policies.native_tools import calls_as_text, native_messages, native_tools
from hgpo.policies.replies import ServerError, called_functions, error_of, name_of, read_error, text_of, token_count
from hgpo.utils.text import counted

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Seconds = Annotated[float, Field(gt=0, lt=1e6)]
Retries = Annotated[int, Field(ge=0, le=1000)]
MAX_CHARACTERS = 100_000
"""Longer responses are cut."""
_UNREADABLE_WAIT = 0.5  # seconds before the first retry after an unreadable answer; doubled each time
_LENGTH_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_USAGE = ("prompt_tokens", "completion_tokens")
_CLOSING: set[asyncio.Task[None]] = set()
"""Tasks that close clients: loops have only weak references, and the garbage collector must not run their ends."""
_CUT = ("length", "max_tokens", "model_length", "content_filter")
"""Reasons why a response ended before its end token, as servers name them."""


class ServerContextFull(ContextFull, AnswerFailed):
    """The server says that prompt and response do not fit into the model's context."""


class UnreadableAnswer(AnswerFailed):
    """A reply of status 200 without a usable answer. A retry may succeed."""


class ServerRefused(ValueError):
    """The server rejects every request: wrong model name, key or address, or an empty account."""


class _ParameterRejected(Exception):
    """The model does not accept a parameter."""

    def __init__(self, name: str, error: ServerError) -> None:
        super().__init__(name)
        self.name, self.error = name, error


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
        native_tools: whether the tools of a prompt are sent as `tools`, and the answer's `tool_calls` are read; if not,
            prompts describe the tools as text, and responses contain calls as text.
    """

    url: str
    key_variable: str = "OPENAI_API_KEY"
    timeout: Seconds = 120.0
    retries: Retries = 8
    length_parameter: str = "max_tokens"
    sends_seed: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    native_tools: bool = False

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

    adapts = True
    """Whether a parameter that the model rejects is renamed or left out; otherwise the request fails."""

    def __init__(
        self,
        server: Server,
        model: str,
        *,
        max_response_tokens: int,
        system_prompt: str = "",
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        """Set up the policy without contacting the server.

        Args:
            server: the server.
            model: name of the model on the server.
            max_response_tokens: most tokens of a response.
            system_prompt: a system message before every prompt; empty: none.
            warn: called with a message once for each deviation from the settings.

        Raises:
            ValueError: the package openai is not installed.
        """
        if missing := missing_client():
            raise ValueError(missing)
        self.server, self.model = server, model
        self._max_response_tokens = max_response_tokens
        self._before = [{"role": "system", "content": encodable(system_prompt)}] if system_prompt else []
        self._warn = warn
        self._length_parameter = server.length_parameter
        self._rejected: set[str] = set()
        self._counts_tokens = True
        self._answered = False
        self._client: tuple[asyncio.AbstractEventLoop, AsyncOpenAI] | None = None

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """An estimate, a quarter of the characters: only the server has the tokenizer."""
        return [_estimate("".join(message.text for message in messages_of(prompt))) for prompt in prompts]

    def take_weights(self, model: Any) -> None:
        """Does nothing, because the server has its own weights."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request.

        Raises:
            AnswerFailed: the request failed after all retries.
            ServerContextFull: prompt and response do not fit into the model's context.
            ServerRefused: the server rejects every request.
            ValueError: the temperature is negative or not finite.
        """
        check_temperature(temperature)
        began = time.perf_counter()
        failed = unreadable = 0
        while True:
            body = self.body(request, temperature)
            try:
                completion, sent = await self._send(body)
            except _ParameterRejected as rejected:
                failed += 1
                self._adapt(rejected.name, rejected.error, body["extra_body"])
            except UnreadableAnswer as error:
                failed, unreadable = failed + 1, unreadable + 1
                if unreadable > self.server.retries:
                    many = counted(unreadable, "unreadable answer")
                    raise AnswerFailed(f"{many} of the server; the last one: {error}") from error
                await asyncio.sleep(min(_UNREADABLE_WAIT * 2 ** (unreadable - 1), 8.0))
            else:
                response = self.read(completion, body, failed + sent, time.perf_counter() - began)
                if self._counts_tokens and response.usage is not None and response.usage.estimated:
                    self._counts_tokens = False
                    self._warn(f"{self.server.url} does not report all tokens: estimating 1 token per 4 characters")
                return response

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """Keywords of the client's `chat.completions.create`."""
        turns = messages_of(request.prompt)
        tools = native_tools(turns) if self.server.native_tools else []
        messages = (
            native_messages(turns) if tools else [{"role": one.role, "content": encodable(one.text)} for one in turns]
        )
        sent: dict[str, Any] = {"temperature": temperature, self._length_parameter: self._max_response_tokens}
        if temperature and self.server.sends_seed and request.seed is not None:
            sent["seed"] = request.seed % 2**31  # the most that some servers accept
        sent |= self.server.extra
        kept = {name: value for name, value in sent.items() if name not in self._rejected}
        offered = {"tools": tools} if tools else {}
        return {"model": self.model, "messages": [*self._before, *messages], **offered, "extra_body": kept}

    async def _send(self, body: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The server's completion, whose first choice has a message, and the number of requests sent.

        If the server reports a cut response as an error, the completion is a substitute with an empty message.
        """
        import openai

        try:
            raw = await self._connected().chat.completions.with_raw_response.create(**body)
        except openai.APIStatusError as error:
            reported = read_error(_document(error.response.text), error.status_code)
            if reported.response_was_cut:
                usage = {"completion_tokens": self._max_response_tokens}
                return {"choices": [{"finish_reason": "length", "message": {}}], "usage": usage}, 1
            raise self._failure(reported, body, AnswerFailed) from error
        except openai.APIConnectionError as error:
            if not self._answered:
                raise ServerRefused(f"{self.server.url} cannot be reached: {reason(error)}") from error
            raise AnswerFailed(reason(error)) from error
        except openai.OpenAIError as error:
            raise AnswerFailed(reason(error)) from error
        document = _document(raw.text)
        if not isinstance(document, dict):
            raise UnreadableAnswer(f"it is not a JSON object: {read_error(document, 200).text}")
        if problem := error_of(document):
            raise self._failure(problem, body, UnreadableAnswer if problem.transient else AnswerFailed)
        choices = document.get("choices")
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            raise UnreadableAnswer("it has no choices")
        if not isinstance(choices[0].get("message"), dict):
            raise UnreadableAnswer("its choice has no message")
        self._answered = True
        return document, raw.retries_taken + 1

    def _failure(self, reported: ServerError, body: Mapping[str, Any], other: type[AnswerFailed]) -> Exception:
        """The exception for an error of the server; `other` if the error concerns this request only."""
        if reported.context_is_full:
            return ServerContextFull(f"the context is full: {reported}")
        sent = body["extra_body"]
        name = reported.rejected(sent) if self.adapts else None
        if name is not None and reported.is_about_a_range and isinstance(sent[name], (int, float)):
            return ServerRefused(f"{self.server.url} does not accept {name} = {sent[name]}: {reported}")
        if name is not None:
            return _ParameterRejected(name, reported)
        if reported.concerns_all(self._answered):
            return ServerRefused(f"{self.server.url} does not serve {self.model!r}: {reported}")
        return other(str(reported))

    def _adapt(self, name: str, reported: ServerError, sent: Mapping[str, Any]) -> None:
        """Rename or leave out a rejected parameter in all later requests, and say so once."""
        if name in self._rejected:
            return  # by a concurrent request
        self._rejected.add(name)
        now = "now left out"
        other = _LENGTH_NAMES.get(name)
        if other is not None and other not in self._rejected and name == self._length_parameter:
            self._length_parameter, now = other, f"now sent as {other}"
        self._warn(f"{self.model} does not accept {name} = {sent[name]} ({reported}): {now}")

    def read(self, completion: Mapping[str, Any], body: Mapping[str, Any], requests: int, seconds: float) -> Response:
        """A completion as a response to `body`.

        Raises:
            AnswerFailed: it has no text, because of a tool call or the server's content filter.
        """
        choice = completion["choices"][0]
        text = text_of(choice["message"], MAX_CHARACTERS)
        if body.get("tools") and (called := calls_as_text(choice["message"])):
            text = f"{text}\n{called}".strip()
        answer, usage = without_thoughts(text).strip(), self._usage(completion, body, text, requests, seconds)
        if not answer and (functions := called_functions(choice["message"])):
            raise AnswerFailed(
                f"the answer is a call of {', '.join(map(name_of, functions))}, not text, but requests offer no "
                "tools: turn off the server's tool parser, or set policy.options.native_tools = true with "
                "agent.name = 'tools'",
                usage,
            )
        if not answer and choice.get("finish_reason") == "content_filter":
            withheld = "the content filter of the server withheld the answer (finish_reason content_filter)"
            raise AnswerFailed(withheld, usage)
        return Response(
            text=text,
            prompt_ids=NO_TOKENS,
            token_ids=NO_TOKENS,
            log_probs=NO_LOG_PROBS,
            finished=is_finished(choice),
            usage=usage,
        )

    def _usage(
        self, completion: Mapping[str, Any], body: Mapping[str, Any], text: str, requests: int, seconds: float
    ) -> RequestUsage:
        """Usage of a completion; token counts that the server does not report are estimates."""
        usage = completion.get("usage")
        prompt, written = [token_count(usage.get(key)) if isinstance(usage, dict) else None for key in _USAGE]
        asked = "".join(message["content"] for message in body["messages"])
        sent: dict[str, Any] = body["extra_body"]
        return RequestUsage(
            prompt_tokens=_estimate(asked) if prompt is None else prompt,
            response_tokens=_estimate(text) if written is None else written,
            requests=requests,
            seconds=seconds,
            estimated=prompt is None or written is None,
            parameters=dict.fromkeys(sorted(self._rejected))
            | sent
            | ({"seed": "one per request"} if "seed" in sent and "seed" not in self.server.extra else {}),
        )

    def _connected(self) -> AsyncOpenAI:
        """The client of the running event loop; its connections are bound to the loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = (loop, AsyncOpenAI(**self.server.connection()))
            closing = loop.create_task(_close_at_the_end(self._client[1]))
            _CLOSING.add(closing)
            closing.add_done_callback(_CLOSING.discard)
        return self._client[1]


async def _close_at_the_end(client: AsyncOpenAI) -> None:
    """Close the client when `asyncio.run` cancels remaining tasks, before the loop is closed."""
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()


def is_finished(choice: Mapping[str, Any]) -> bool:
    """Whether a response is complete, which is assumed if the server gives no finish reason."""
    return str(choice.get("finish_reason")).lower() not in _CUT


def _document(text: str) -> Any:
    """The parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _estimate(text: str) -> int:
    """Estimated number of tokens of a text: a quarter of its characters."""
    return len(text) // 4 + 1


def server_policy(model: str, options: Mapping[str, Any], **arguments: Any) -> ServerPolicy:
    """A policy for evaluation with a server; `options` are fields of `Server`, `arguments` those of `ServerPolicy`.

    Raises:
        ValueError: an unknown option, a wrong value, a missing `url`, or openai is not installed.
    """
    server = Server(**converted_options("policy backend 'server'", Server, options))
    return ServerPolicy(server, model, **arguments)


def missing_client() -> str | None:
    """A sentence about the package to install for servers; None if it is installed."""
    try:
        import openai  # noqa: F401
    except ImportError as error:
        return f'servers need the package openai: pip install "hgpo[server]" ({error})'
    return None


def reason(error: Exception) -> str:
    """The error in at most about 300 characters; the server's message may have any length."""
    cause = f" ({type(error.__cause__).__name__}: {error.__cause__})" if error.__cause__ else ""
    return f"{type(error).__name__}: {' '.join(f'{error}{cause}'.split())[:300]}"
