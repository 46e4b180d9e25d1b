"""Messages of OpenEnv's WebSocket as text. They are untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


class BadMessage(ValueError):
    """A message that cannot be answered. `code` is one of OpenEnv's error codes."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def read_json(text: str | bytes) -> Json:
    """The object in a message.

    Raises:
        BadMessage: it is no JSON text, or no object.
    """
    if isinstance(text, bytes):
        raise BadMessage("INVALID_JSON", "messages are text, and this one is binary")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage("INVALID_JSON", f"no JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage("INVALID_JSON", "a message is a JSON object with `type` and `data`")
    return message


def as_text(message: Mapping[str, Any]) -> str:
    """A message as it is sent.

    Raises:
        TypeError: a value has no form in JSON.
        ValueError: a number is not finite.
    """
    return json.dumps(message, default=_plain, allow_nan=False)


def error_message(code: str, reason: str, **more: object) -> Json:
    """The message that reports an error to a client. `code` is one of OpenEnv's."""
    return {"type": "error", "data": {"message": reason, "code": code, **more}}


def _plain(value: object) -> object:
    """A number of numpy's as one of Python's, a sequence as a list."""
    if callable(item := getattr(value, "tolist", None)):
        return item()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")
