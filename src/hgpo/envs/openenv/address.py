"""Addresses of OpenEnv servers: which are allowed, and where their parts are."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        host: its host name or IP address.
        port: its port.
        sessions: address of its WebSocket.
        pages: beginning of the addresses of its HTTP pages.

    Example: `parse_address("http://127.0.0.1:8000").sessions == "ws://127.0.0.1:8000/ws"`.
    """

    host: str
    port: int
    sessions: str
    pages: str


def parse_address(url: str, *, allow_remote: bool = False) -> Address:
    """Read the address of a server.

    Raises:
        ValueError: it is none, holds a password, or is another machine's and that was not allowed.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no address: {error}") from error
    if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no address of a server; give one like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address with a user or password in it would stand in every run's settings; leave them out")
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
    """Whether a host is this machine by its own name for itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
