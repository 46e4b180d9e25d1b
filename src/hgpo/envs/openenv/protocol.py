"""Messages and addresses of OpenEnv's protocol. Messages are untrusted."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]


class BadMessage(ValueError):
    """An invalid message. `code` is one of OpenEnv's error codes."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def parse_message(text: str | bytes) -> Json:
    """The object in a message.

    Raises:
        BadMessage: the message is not JSON text, or not an object.
    """
    if isinstance(text, bytes):
        raise BadMessage("INVALID_JSON", "messages are text, and this one is binary")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage("INVALID_JSON", f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage("INVALID_JSON", "a message is a JSON object with `type` and `data`")
    return message


def as_text(message: Mapping[str, Any]) -> str:
    """A message as JSON text.

    Raises:
        TypeError: a value is not serialisable.
        ValueError: a number is not finite.
    """
    return json.dumps(message, default=_plain, allow_nan=False)


def error_message(code: str, reason: str, **more: object) -> Json:
    """An error message for a client. `code` is one of OpenEnv's error codes."""
    return {"type": "error", "data": {"message": reason, "code": code, **more}}


def _plain(value: object) -> object:
    """A JSON value for an array or number of numpy, or for a set."""
    if callable(item := getattr(value, "tolist", None)):
        return item()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server; `sessions` is the URL of its WebSocket, `pages` the base URL of its HTTP pages."""

    host: str
    port: int
    sessions: str
    pages: str


def parse_address(url: str, *, allow_remote: bool = False) -> Address:
    """Read the address of a server.

    Raises:
        ValueError: the address is invalid, has a user or password, or is on another machine without `allow_remote`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not the address of a server; give one like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address contains a user or password, and runs store their address; remove them")
    if not allow_remote and not is_loopback(host):
        raise ValueError(
            f"{host} is another machine, whose texts a model would be trained on and which would see every action; "
            "if you trust it, set environment.options.allow_remote=true"
        )
    where = f"{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    scheme = _SCHEMES[parts.scheme]
    pages = f"{scheme.replace('ws', 'http')}://{where}"
    return Address(host, port or (443 if scheme == "wss" else 80), f"{scheme}://{where}/ws", pages)


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
