"""Which addresses a run may name."""

from __future__ import annotations

import pytest

from hgpo.envs.openenv.protocol import parse_address


@pytest.mark.parametrize(
    ("url", "sessions", "pages"),
    [
        ("http://127.0.0.1:8000", "ws://127.0.0.1:8000/ws", "http://127.0.0.1:8000"),
        ("ws://localhost:8000/", "ws://localhost:8000/ws", "http://localhost:8000"),
        ("https://[::1]:9/env", "wss://[::1]:9/env/ws", "https://[::1]:9/env"),
    ],
)
def test_this_machine_is_allowed(url: str, sessions: str, pages: str) -> None:
    address = parse_address(url)
    assert (address.sessions, address.pages) == (sessions, pages)


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.3:8000", "http://localhost.evil.example", "ws://0.0.0.0:8000", "http://127.0.0.1.evil.example"],
)
def test_another_machine_needs_leave(url: str) -> None:
    with pytest.raises(ValueError, match="allow_remote"):
        parse_address(url)
    assert parse_address(url, allow_remote=True).sessions.endswith("/ws")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "8000",
        "localhost:8000",
        "file:///etc/passwd",
        "http://127.0.0.1:99999",
        "http://127.0.0.1/?a=b",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not (an|the) address"):
        parse_address(url)


def test_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match="remove them"):
        parse_address("http://me:secret@127.0.0.1:8000")
