"""Tool calls as text: strict reading of untrusted JSON, and the two forms in which calls are written.

An environment with tools lists them in `info["tools"]`, each with `name`, `description` and `parameters` (a JSON
schema). Its actions are `{"tool": NAME, "arguments": {…}}`. Models write
`<tool_call>{"name": NAME, "arguments": {…}}</tool_call>`, the form that the chat templates of Hermes and Qwen models
describe. The two JSON objects differ only in the key of the tool's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_CALL_CHARACTERS = 2_000
"""Longer calls, as `ToolCall.action` writes them, are rejected."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MOST_FAILURES = 50
_OPENED, _PLAIN_DECODER = re.compile(rf"{_OPEN}\s*(?=[{{\[])"), json.JSONDecoder()


class ToolCallError(ValueError):
    """A text is not a valid tool call; the message is a reason in a few words."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call.

    Attributes:
        name: of the tool; untrusted.
        arguments: JSON values by name; untrusted.
    """

    name: str
    arguments: Mapping[str, Any]

    @property
    def action(self) -> str:
        """The action for an environment with tools."""
        return _written({"tool": self.name, "arguments": self.arguments})

    @property
    def tagged(self) -> str:
        """The call as models write it."""
        return f"{_OPEN}\n{_written({'name': self.name, 'arguments': self.arguments})}\n{_CLOSE}"


def parse_action(action: str) -> ToolCall:
    """The call in an environment's action.

    Raises:
        ToolCallError: the action is not a JSON object with exactly the keys `tool` (text) and `arguments` (object).

    Example: `parse_action('{"tool": "look", "arguments": {}}') == ToolCall("look", {})`.
    """
    return _call(parse_object(action), "tool")


def parse_tagged_call(response: str) -> tuple[str, ToolCall]:
    """The text before the only `<tool_call>` of a response, and the call. White space around tags and JSON is ignored.

    Raises:
        ToolCallError: there is no call or more than one, it is not complete, or text follows it.
    """
    before, opened, rest = response.partition(_OPEN)
    if not opened:
        raise ToolCallError(f"no {_OPEN}")
    value, end = _decode(rest)
    after = rest[end:].lstrip()
    if not after.startswith(_CLOSE):
        raise ToolCallError(f"no {_CLOSE} after the JSON object")
    if after := after.removeprefix(_CLOSE).strip():
        raise ToolCallError("more than one tool call" if _OPEN in after else f"text after {_CLOSE}")
    return before.strip(), _call(value, "name")


def json_of_calls(text: str, opening: re.Pattern[str] = _OPENED) -> Iterator[tuple[int, int, Any]]:
    """Begin, end and value of the JSON object or list after each `<tool_call>`; a tag in this JSON begins no call.

    It stops after `_MOST_FAILURES` tags without JSON: the error of each takes time that grows with the text before it.

    Args:
        text: a model's response.
        opening: matches what comes before the JSON of a call, up to its first character.
    """
    end = failures = 0
    while failures < _MOST_FAILURES and (opened := opening.search(text, end)):
        begin = end = opened.end()
        try:
            value, end = _PLAIN_DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            failures += 1
        else:
            yield begin, end, value


def escape_in_calls(response: str, pattern: re.Pattern[str], opening: re.Pattern[str] = _OPENED) -> str:
    """Replace the first character of each match in the JSON of calls by its JSON escape; the calls stay equal.

    Args:
        response: a model's response.
        pattern: matches text that JSON contains only in strings.
        opening: see `json_of_calls`.
    """
    parts, rest = [], 0
    for begin, end, _ in json_of_calls(response, opening):
        escaped = pattern.sub(lambda match: f"\\u{ord(match[0][0]):04x}{match[0][1:]}", response[begin:end])
        parts += [response[rest:begin], escaped]
        rest = end
    return "".join([*parts, response[rest:]])


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in an untrusted text that contains nothing else.

    Raises:
        ToolCallError: the text is not one JSON object, is too long, or has a repeated key, NaN, Infinity or surrogate.
    """
    value, end = _decode(text)
    if text[end:].strip():
        raise ToolCallError("text after the JSON object")
    return value


def describe(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as a text for prompts: one line of JSON per tool, then the form of a call."""
    lines = "\n".join(
        json.dumps({"type": "function", "function": tool}, ensure_ascii=False, default=dict) for tool in tools
    )
    form = f'{_OPEN}\n{{"name": NAME, "arguments": {{…}}}}\n{_CLOSE}'
    return f"<tools>\n{lines}\n</tools>\n\nTo call one of these tools, end your answer with a JSON object:\n{form}"


def as_response(observation: str) -> str:
    """The result of a call as a text for prompts."""
    return f"<tool_response>\n{observation}\n</tool_response>"


def of_response(text: str) -> str:
    """The inverse of `as_response`."""
    return text.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")


def signatures(tools: Sequence[Mapping[str, Any]]) -> str:
    """One line of text per tool. Example line: `look(place): Look at a place.`."""
    return "\n".join(
        f"{tool['name']}({', '.join(tool.get('parameters', {}).get('properties', {}))}): {tool.get('description', '')}"
        for tool in tools
    )


def _decode(text: str) -> tuple[dict[str, Any], int]:
    """The JSON object at the beginning of a text, and its end."""
    begin = len(text) - len(text.lstrip())
    try:
        value, end = _DECODER.raw_decode(text, begin)
        written = _written(value)
        written.encode()  # rejects lone surrogates
    except (ValueError, RecursionError) as error:
        raise ToolCallError(str(error) if isinstance(error, ToolCallError) else "the call is not valid JSON") from error
    if not isinstance(value, dict):
        raise ToolCallError("not a JSON object")
    if len(written) > MAX_CALL_CHARACTERS:
        raise ToolCallError(f"more than {MAX_CALL_CHARACTERS} characters")
    return value, end


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ToolCallError("a repeated key")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ToolCallError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _call(value: Mapping[str, Any], key: str) -> ToolCall:
    if set(value) != {key, "arguments"}:
        raise ToolCallError(f'the keys must be exactly "{key}" and "arguments"')
    if not isinstance(value[key], str) or not isinstance(value["arguments"], dict):
        raise ToolCallError(f'"{key}" is not text or "arguments" is not an object')
    return ToolCall(value[key], value["arguments"])


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
