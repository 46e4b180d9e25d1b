"""Replies of chat servers: the text of a message, token counts, and errors in the format of any server."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.messages import encodable

MAX_ERROR_CHARACTERS = 600
"""Most characters of a server's error message; the rest is left out."""
_KEYS = ("text", "value", "refusal", "thinking", "reasoning")
_THOUGHT = re.compile("think|reason")
_THOUGHTS_OF = ("reasoning_content", "reasoning", "thinking", "reasoning_details")


def text_of(message: Mapping[str, Any], most: int) -> str:
    """The text of a message, at most `most` characters, without lone surrogates.

    A message's content is text or a list of parts. Without content, the text is the refusal, or else the thoughts
    between tags, which show why a response contains no action.
    """
    said, thought = _split(message.get("content"))
    if not said.strip():
        said = "".join(_split(message.get("refusal")))
    if said.strip():
        return encodable(said[:most])
    others = ("".join(_split(message.get(name))) for name in _THOUGHTS_OF)
    thought = thought or next(filter(None, others), "")
    return f"<think>\n{encodable(thought[:most])}\n</think>" if thought else ""


def _split(content: Any, depth: int = 4) -> tuple[str, str]:
    """What is said and what is thought in text, a part or a list of parts; pictures and others are left out."""
    if isinstance(content, str):
        return content, ""
    if isinstance(content, list) and depth:
        pairs = [_split(part, depth - 1) for part in content]
        return "".join(said for said, _ in pairs), "".join(thought for _, thought in pairs)
    if isinstance(content, Mapping) and depth:
        key = next((key for key in _KEYS if content.get(key)), "")
        text = "".join(_split(content.get(key), depth - 1))
        return ("", text) if _THOUGHT.search(f"{content.get('type')} {key}") else (text, "")
    return "", ""


def called_functions(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions that a message calls, each with a name and arguments, which are untrusted."""
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    return [function for function in functions if isinstance(function, Mapping)]


def name_of(function: Mapping[str, Any]) -> str:
    """The name of a called function, at most 80 characters."""
    return encodable(str(function.get("name")))[:80]


def token_count(value: Any) -> int | None:
    """A token count reported by a server; None if the value is not a count."""
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return count if 0 <= count < 2**53 else None


# Errors

_FULL_CODES = {
    *("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "prompt_too_long"),
    *("model_context_window_exceeded", "string_above_max_length", "request_too_large"),
}
_RESPONSE_LIMIT = re.compile(r"\bmax_(completion_|new_|output_)?tokens\b")
_NOTHING_LEFT = re.compile(r"max_\w*tokens\W{0,3}must be at least 1, got -")  # of vLLM
_FULL = re.compile(
    # A limit and an excess, in either order: OpenAI, vLLM, SGLang, Ollama, Mistral, Gemini, TensorRT-LLM, llama.cpp
    r"(context|sequence|prompt|input)[\s_(-]*(token )?(length|window|size|limit|count|tokens)\b.{0,120}?"
    r"(exceed|longer|maximum|too (long|large|big)|overflow|greater|larger)"
    r"|(exceed|longer than|maximum|too (long|large|big)|overflow|greater than|larger than)\w*\b.{0,80}?"
    r"(context|sequence|prompt|input|content|model token)[\s_-]*(token )?(length|window|size|limit|count)"
    r"|(exceed|longer|greater|larger)\w* .{0,60}(max_model_len|max_seq_len|max_context)"
    # Anthropic, Bedrock, Fireworks, LM Studio
    r"|\b(prompt|input|messages?|conversation)\b[^.]{0,40}\btoo (long|large|big)|context (the )?overflows"
    # OpenAI, Groq, Cohere, DashScope, text-generation-inference
    r"|reduce the length|too many (input |prompt )?tokens|range of input length"
    r"|inputs?\W.{0,40}(tokens.{0,40}must be|must have less)",
    re.IGNORECASE | re.DOTALL,
)
_MODERATION = re.compile(r"moderation|flagged|content[ _](policy|filter)", re.IGNORECASE)
_ALL_CODES = {
    *("insufficient_quota", "insufficient_credits", "billing_not_active", "billing_hard_limit_reached"),
    *("invalid_api_key", "authentication_error", "permission_error", "model_not_found", "not_found_error"),
}
_ACCOUNT = re.compile(
    r"credit balance|insufficient[ _](credit|balance|fund|quota)|(exceeded|out of) your (current )?quota"
    r"|payment required",
    re.IGNORECASE,
)
_KEY_OR_MODEL = re.compile(
    r"\b(api[ _-]?key|model)\b[^.]{0,80}\b(invalid|not (a )?valid|(not|n't) (found|exist|available)|unknown|incorrect)"
    r"|\b(invalid|incorrect|unknown|no such|not a valid)\b (api[ _-]?key|model)\b",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not (permitted|allowed|valid|available|accept)|invalid"
    r"|extra (inputs|fields)|deprecated|must be|only|cannot|can't|incompatible|forbidden|no longer|disabled|not found",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"too (large|big|high|low|small|long)|at (most|least)|between|below|above|maximum|minimum|less than|range|exceed"
    r"|[<>]=",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ServerError:
    """An error as a server reports it.

    Attributes:
        text: the message, in one line.
        status: the HTTP status; for a reply with status 200, the error code in its body if there is one.
        codes: all values of `code`, `type` and `status`, lower-cased.
        parameter: the request field that caused the error, if the server names one.
    """

    text: str
    status: int
    codes: frozenset[str] = frozenset()
    parameter: str | None = None

    def __str__(self) -> str:
        return f"status {self.status}: {self.text}"

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (200, 408, 409, 429) or self.status >= 500

    @property
    def context_is_full(self) -> bool:
        """Whether prompt and response do not fit into the model's context."""
        if self.status == 413 or self.codes & _FULL_CODES:
            return True
        if self.status not in (200, 400, 422, 500):
            return False
        return bool(_FULL.search(_RESPONSE_LIMIT.sub("", self.text)) or _NOTHING_LEFT.search(self.text))

    @property
    def response_was_cut(self) -> bool:
        """Whether the model reached the response limit before its answer, which OpenAI reports as an error."""
        return self.status == 400 and "output limit was reached" in self.text

    def concerns_all(self, answered: bool) -> bool:
        """Whether every request fails: wrong key, model or address, or empty account. `answered`: one has succeeded."""
        if self.status == 403 and _MODERATION.search(self.text):
            return False
        if self.status in (401, 402, 403, 404) or self.codes & _ALL_CODES or _ACCOUNT.search(self.text):
            return True
        return not answered and self.status in (200, 400, 422) and bool(_KEY_OR_MODEL.search(self.text))

    def rejected(self, sent: Collection[str]) -> str | None:
        """The request parameter that the model does not accept; None for other errors."""
        if self.status not in (200, 400, 422):
            return None
        if self.parameter is not None:
            return self.parameter if self.parameter in sent else None
        words = re.findall(r"[a-z]+", self.text.replace("_", "").lower())
        names = {name.replace("_", "").lower(): name for name in sent}
        return next((names[word] for word in words if word in names), None) if _REJECTED.search(self.text) else None

    @property
    def is_about_a_range(self) -> bool:
        """Whether a parameter's value is out of range, so another value would be accepted."""
        return bool(_RANGE.search(self.text))


def read_error(value: Any, status: int) -> ServerError:
    """The error in the body of a reply, which is text or JSON in the format of any server.

    Example: `read_error({"error": {"message": "Insufficient credits", "code": 402}}, 200).status == 402`.
    """
    try:
        return _read_error(value, status)
    except RecursionError:
        return ServerError("an error that is nested too deeply to be read", status)


def _read_error(value: Any, status: int) -> ServerError:
    codes: set[str] = set()
    further: list[str] = []
    parameter = None
    while isinstance(value, (Mapping, list)):
        if isinstance(value, list):  # of FastAPI and Gemini
            value = value[0] if value else "(empty)"
            continue
        codes |= {str(value[key]).lower() for key in ("code", "type", "status", "error_type") if value.get(key)}
        place = value.get("param") or value.get("loc") or parameter
        parameter = place[-1] if isinstance(place, list) else place
        said = [value[key] for key in ("error", "message", "detail", "msg", "errors") if value.get(key)]
        raw = value["metadata"].get("raw") if isinstance(value.get("metadata"), Mapping) else None
        said += [str(raw)] if raw else []  # of OpenRouter: the provider's own error
        deeper = [one for one in said if not isinstance(one, str)][:1]
        texts = [one for one in said if isinstance(one, str)]
        further += texts if deeper else texts[1:]
        value = [*deeper, *texts, json.dumps(value)][0]
    text = " ".join(": ".join([str(value), *further]).split())
    if isinstance(parameter, str):
        parameter = parameter.rpartition(".")[2]
        text = text if parameter in text else f"{parameter}: {text}"
    text = encodable(text[:MAX_ERROR_CHARACTERS])
    if status == 200:
        status = next((int(code) for code in codes if re.fullmatch(r"[45]\d\d", code)), status)
    return ServerError(text, status, frozenset(codes), parameter if isinstance(parameter, str) else None)


def error_of(document: Mapping[str, Any]) -> ServerError | None:
    """The error in a reply of status 200, or in its first choice."""
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    for holder in (document, choice):
        if isinstance(holder, Mapping) and holder.get("error"):
            return read_error({"error": holder["error"]}, 200)
    if choice is None and any(document.get(key) for key in ("detail", "message", "errors")):
        return read_error(document, 200)
    return None
