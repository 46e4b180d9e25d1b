"""Conversations as steps: the assistant's turns are actions, and the messages before a turn are its observation.

The forms of OpenAI, Anthropic, LangChain and ShareGPT are read:

    {"role": "assistant", "content": "…", "tool_calls": [{"id": "call_1", "function": {"name": …, "arguments": "{…}"}}]}
    {"role": "assistant", "content": [{"type": "text", "text": "…"}, {"type": "tool_use", "name": …, "input": {…}}]}
    {"type": "ai", "content": "", "tool_calls": [{"name": …, "args": {…}, "id": "…"}]}, also as {"type": …, "data": {…}}
    {"from": "gpt", "value": "…"}

Ids of tool calls are random, so they are not part of an action. Pictures are compared by content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any

from hgpo.keys import canonical_json
from hgpo.storage.schema import converted, reward_number, text

Step = dict[str, Any]

_SYSTEM, _OBSERVING, _ACTING = "system", "observing", "acting"
_ROLES = {
    _SYSTEM: ("system", "developer"),
    _OBSERVING: ("user", "tool", "function", "human", "observation", "function_response", "ipython"),
    _ACTING: ("assistant", "gpt", "model", "ai", "bot", "chatgpt", "function_call"),
}
_KIND = {role: kind for kind, roles in _ROLES.items() for role in roles}
_TYPES = ("system", "human", "tool", "function", "ai")  # of LangChain's messages
_TEXTS = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_LONG_DATA = 200
"""Longer data of a picture, in characters, is replaced by its digest."""


def steps_of_conversation(messages: Sequence[Any]) -> list[Step]:
    """One step per turn of the assistant; messages after the last turn are its next observation.

    Consecutive messages of the assistant are one turn. If the assistant opens the conversation, its
    first observation is the system message, or empty text without one.

    Args:
        messages: Objects with `role` and `content`, or with `from` and `value`.

    Returns:
        Steps with observation and action, and with reward and next_observation where there is one.

    Raises:
        ValueError, TypeError: A message cannot be read; the error names it.
    """
    steps: list[Step] = []
    turns: list[list[tuple[Mapping[str, Any], str]]] = []
    observed: list[str] = []
    system: list[str] = []
    in_turn = False
    for place, message in enumerate(messages):
        where = f"message {place}"
        message = _with_role(message)
        kind = _kind(message, where)
        if kind == _SYSTEM:
            system.append(_content(message, where))
        elif kind == _OBSERVING:
            observed.append(_content(message, where))
            in_turn = False
        else:
            if not in_turn:
                before = observed or ([] if steps else system)
                steps.append({"observation": "\n".join(before)})
                turns.append([])
            turns[-1].append((message, where))
            observed, in_turn = [], True
    for step, turn in zip(steps, turns, strict=True):
        step |= _turn(turn)
    for step, after in pairwise(steps):
        step["next_observation"] = after["observation"]
    if steps and observed:
        steps[-1]["next_observation"] = "\n".join(observed)
    return steps


def _with_role(message: Any) -> Any:
    """A message of LangChain with its type as `role`; any other message as it is."""
    if not isinstance(message, Mapping) or "role" in message or message.get("type") not in _TYPES:
        return message
    data = message.get("data")
    return {**(data if isinstance(data, Mapping) else message), "role": message["type"]}


def _kind(message: Any, where: str) -> str:
    if not isinstance(message, Mapping):
        raise TypeError(f"{where} is not an object: {message!r:.60}")
    role = message.get("role", message.get("from"))
    if not isinstance(role, str) or role not in _KIND:
        raise ValueError(f"{where} has the role {role!r:.60}; roles are {', '.join(_KIND)}")
    return _KIND[role]


def _turn(messages: Sequence[tuple[Mapping[str, Any], str]]) -> Step:
    """Action and reward of consecutive messages of the assistant: their texts, and as last line all tool calls."""
    spoken, calls, rewards = [], [], []
    for message, where in messages:
        if _raw_content(message) is not None:  # may be absent beside tool calls
            spoken.append(_content(message, where))
        calls += [_call(call, where) for call in _calls(message, where)]
        if message.get("reward") is not None:
            rewards.append(converted(message["reward"], reward_number, f"{where}, reward"))
    called = text(canonical_json(calls)) if calls else ""
    turn: Step = {"action": "\n".join(part for part in (*spoken, called) if part)}
    return turn | ({"reward": sum(rewards)} if rewards else {})


def _calls(message: Mapping[str, Any], where: str) -> list[Any]:
    """The tool calls of a message, in any of the forms."""
    kwargs = message.get("additional_kwargs")  # where older versions of LangChain keep calls
    more = kwargs if isinstance(kwargs, Mapping) else {}
    calls = _parsed(message.get("tool_calls")) or more.get("tool_calls") or []
    if isinstance(calls, Mapping):
        calls = [calls]
    if not isinstance(calls, (list, tuple)):
        raise TypeError(f"{where}: tool_calls is not a list: {calls!r:.60}")
    function = message.get("function_call") or (not calls and more.get("function_call"))
    called = [function] if function else []
    content = _raw_content(message)
    parts = content if isinstance(content, (list, tuple)) else ()
    used = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "tool_use"]
    return [*calls, *called] or used  # LangChain keeps Anthropic's calls in both places


def _call(call: Any, where: str) -> dict[str, Any]:
    """Name and arguments of a tool call."""
    if isinstance(call, str):  # some logs hold each call as JSON text
        call = _parsed(call)
    if not isinstance(call, Mapping):
        raise TypeError(f"{where}: a tool call is not an object: {call!r:.60}")
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    name = function.get("name", inner if isinstance(inner, str) else None)
    if name is None:
        raise ValueError(f"{where}: a tool call has no name; it has {', '.join(map(str, function))}")
    for key in ("arguments", "args", "input", "parameters"):
        if function.get(key) is not None:
            return {"name": name, "arguments": _parsed(function[key])}
    return {"name": name, "arguments": {}}


def _parsed(value: Any) -> Any:
    """The value of JSON text; other text as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError):
        return value


def _raw_content(message: Mapping[str, Any]) -> Any:
    return message.get("content", message.get("value"))


def _content(message: Mapping[str, Any], where: str) -> str:
    """The text of a message; other parts become JSON, without tool calls, thoughts and ids."""
    content = _raw_content(message)
    if content is None:
        has = ", ".join(str(key) for key, value in message.items() if value is not None)
        raise ValueError(f"{where} has no content; it has {has}")
    try:
        return text(content if isinstance(content, str) else _content_text(content))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where}, content: {error}") from error


def _content_text(content: Any) -> str:
    if not isinstance(content, (list, tuple)):
        return canonical_json(content)
    parts = [part for part in map(_part, content) if part is not None]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else canonical_json(parts)


def _part(part: Any) -> Any:
    """One part of a content list: text as it is, other parts for JSON; None for tool calls and thoughts."""
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if kind in _TEXTS:
        return text(part.get("text"))
    if kind == "tool_use" or kind in _THOUGHTS:
        return None
    if kind == "tool_result":
        result = part.get("content")
        return "" if result is None else result if isinstance(result, str) else _content_text(result)
    if kind is None:  # not a message part but a value of the environment
        return dict(part)
    return {key: _shortened(value) for key, value in part.items() if key not in ("id", "detail")}


def _shortened(value: Any) -> Any:
    """Long text inside a part, such as a picture's data, as a digest."""
    if isinstance(value, str) and len(value) > _LONG_DATA:
        return "sha256:" + sha256(value.encode("utf-8", "replace")).hexdigest()
    return {key: _shortened(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value
