"""Prompts with tool calls in the form of OpenAI's chat protocol, and the protocol's calls as text.

Agents write tools, calls and results as text (`hgpo.tool_calls`). A server with `native_tools` gets them as `tools`,
`tool_calls` and messages of the role `tool`, and its calls become text again, so agents and records have one form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hgpo.messages import Message, encodable
from hgpo.policies.replies import called_functions, name_of
from hgpo.tool_calls import (
    MAX_CALL_CHARACTERS,
    ToolCall,
    ToolCallError,
    describe,
    of_response,
    parse_object,
    parse_tagged_call,
)


def native_tools(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The tools that a prompt offers, as the protocol's `tools`; empty if it offers none."""
    tools = json.loads(messages[0].tools) if messages[0].tools else []
    return [{"type": "function", "function": tool} for tool in tools]


def native_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A prompt's messages in the protocol's form, without the tools' text; the turn after a call is its result."""
    written: list[dict[str, Any]] = []
    open_call = ""
    for number, message in enumerate(messages):
        text = encodable(
            message.text.removeprefix(describe(json.loads(message.tools))) if message.tools else message.text
        )
        if message.role == "user":
            role = {"role": "tool", "tool_call_id": open_call} if open_call else {"role": "user"}
            written.append({**role, "content": of_response(text) if open_call else text.strip()})
            open_call = ""
            continue
        try:
            before, call = parse_tagged_call(text)
        except ToolCallError:
            written.append({"role": "assistant", "content": text})
            continue
        open_call = f"call{number:05}"  # nine letters and digits, which all servers accept
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        calls = [{"id": open_call, "type": "function", "function": function}]
        written.append({"role": "assistant", "content": before, "tool_calls": calls})
    return written


def calls_as_text(message: Mapping[str, Any]) -> str:
    """The tool calls in a server's message (untrusted) as the text that agents read; "" if there are none.

    Arguments are JSON text or, from some servers, an object. Those that are not a strict JSON object of at most
    `MAX_CALL_CHARACTERS` characters are cut and otherwise unchanged, so that agents reject the call as invalid.
    """
    return "\n".join(_as_text(function) for function in called_functions(message))


def _as_text(function: Mapping[str, Any]) -> str:
    name, arguments = name_of(function), function.get("arguments") or {}
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    except RecursionError:
        text = "nested too deeply"
    text = encodable(text)[: MAX_CALL_CHARACTERS + 1]
    try:
        return ToolCall(name, parse_object(text)).tagged
    except ToolCallError:
        return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n</tool_call>'
