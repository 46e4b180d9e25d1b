"""Clients of every kind, over real sockets on this machine."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread

import pytest

from hgpo.local_server import LARGEST_BODY, LocalHandler, LocalServer, whole_number


class Echo(LocalHandler):
    def do_GET(self) -> None:
        if self.trusted():
            if self.path == "/broken":
                raise RuntimeError("a mistake of ours")
            self.answer(b"here", "text/plain")

    def do_POST(self) -> None:
        if self.trusted() and (content := self.body()) is not None:
            self.answer(content, "text/plain")


@contextmanager
def running(**options: float) -> Iterator[LocalServer]:
    with LocalServer(Echo, **options) as server:  # type: ignore[arg-type]
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def connect(server: LocalServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=20)


def ask(server: LocalServer, start: str = "GET /", headers: str = "", body: bytes = b"") -> bytes:
    """The whole answer, sent as text so that requests can be as odd as they like."""
    with connect(server) as client:
        request = f"{start} HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n{headers}\r\n"
        client.sendall(request.encode("latin-1") + body)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with running() as made:
        yield made


@pytest.mark.parametrize(
    "length", ["\u00b2", "-1", "", "x", "1e3", "1" * 5000, f"{LARGEST_BODY + 1}", "0000000000000009999999999"]
)
def test_a_length_that_is_none_is_refused(server: LocalServer, length: str) -> None:
    assert ask(server, "POST /", f"Content-Length: {length}\r\n").startswith(b"HTTP/1.0 413")


def test_a_form_arrives_whole_or_not_at_all(server: LocalServer) -> None:
    assert ask(server, "POST /", "Content-Length: 4\r\n", b"form").endswith(b"\r\nform")
    with connect(server) as client:
        client.sendall(f"POST / HTTP/1.0\r\nHost: {server.hosts[0]}\r\nContent-Length: 9\r\n\r\nhalf".encode())
        client.shutdown(socket.SHUT_WR)
        assert client.recv(65536).startswith(b"HTTP/1.0 400")


def test_a_hundred_at_once_are_all_answered(server: LocalServer) -> None:
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: ask(server), range(100)))
    assert all(answer.endswith(b"here") for answer in answers)


def test_a_reset_connection_says_nothing(server: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    for sent in (
        b"",
        b"GET / HTTP/1.0\r\n",
        f"POST / HTTP/1.0\r\nHost: {server.hosts[0]}\r\nContent-Length: 9\r\n\r\n".encode(),
    ):
        client = connect(server)
        client.sendall(sent)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it resets it
        client.close()
    time.sleep(0.2)
    assert ask(server).endswith(b"here")
    assert capsys.readouterr().err == ""


def test_a_mistake_of_ours_is_not_hidden(server: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    ask(server, "GET /broken")
    assert "a mistake of ours" in capsys.readouterr().err


def test_a_silent_client_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with running(read_timeout=0.2) as server, connect(server) as silent, connect(server) as half:
        half.sendall(b"GET / HT")
        assert silent.recv(1) == b""
        assert half.recv(1) == b""
        assert ask(server).endswith(b"here")
    assert capsys.readouterr().err == ""


def test_of_too_many_the_oldest_gives_way(capsys: pytest.CaptureFixture[str]) -> None:
    with running(most_connections=4) as server:
        waiting = [connect(server) for _ in range(12)]
        assert ask(server).endswith(b"here")
        assert waiting[0].recv(1) == b""  # hung up on
        for client in waiting:
            client.close()
    assert capsys.readouterr().err == ""


def test_only_this_machines_own_pages_are_answered(server: LocalServer) -> None:
    assert ask(server, "GET /", "Origin: http://shop.example\r\n").startswith(b"HTTP/1.0 403")
    assert ask(server, "GET /", f"Origin: http://localhost:{server.server_port}\r\n").endswith(b"here")
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.0 403")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_there_is_not(port: int) -> None:
    with pytest.raises(ValueError, match=f"port {port}: ports are 1 to 65535"):
        LocalServer(Echo, port)


def test_whole_numbers() -> None:
    assert [whole_number(text) for text in ("0", "007", "999999999")] == [0, 7, 999_999_999]
    assert [whole_number(text) for text in ("", "\u00b2", "-1", "1 ", "1234567890")] == [None] * 5
