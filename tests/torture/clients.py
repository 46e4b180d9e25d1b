"""The two servers under clients that are slow, broken, many or malicious: a good one is answered all the same."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread

from hgpo.envs.webshop.generator import generate_catalog
from hgpo.envs.webshop.server import ShopServer
from hgpo.local_server import LocalServer
from torture.outcomes import Outcome
from torture.specimen import RUN, make_specimen

_PATIENCE = 15.0  # seconds for an answer that takes milliseconds
_AT_ONCE = 100
Client = Callable[[socket.socket, str, Random], object]


def clients(folder: Path, rng: Random) -> Iterator[Outcome]:
    """A crowd of bad clients on one of the servers, and a good one among them."""
    from hgpo.report.report import build_report
    from hgpo.report.serve import LiveReport, make_server

    run = make_specimen(folder.parent / "specimen").finished / RUN
    errors = io.StringIO()
    with (
        redirect_stderr(errors),
        _running(make_server(LiveReport(run, partial(build_report, run)), 0)) as report,
        _running(ShopServer(generate_catalog("small", 0))) as shop,
    ):
        while True:
            server, path = rng.choice([(report, "/"), (report, "/data"), (shop, "/")])
            crowd = [rng.choice(_CROWD) for _ in range(rng.randint(1, _AT_ONCE))]
            case = f"{path} of {type(server).__name__} among {len(crowd)} clients"
            yield _served(server, path, crowd, rng, case, errors)


def _served(
    server: LocalServer, path: str, crowd: list[Client], rng: Random, case: str, errors: io.StringIO
) -> Outcome:
    opened = []
    try:
        for client in crowd:
            connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=_PATIENCE)
            opened.append(connection)
            try:
                client(connection, server.hosts[0], rng)
            except OSError:
                continue  # the server hung up on it
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: _asked(server, path), range(4)))
    finally:
        for connection in opened:
            connection.close()
    if bad := [answer[:100] for answer in answers if not answer.startswith(b"HTTP/1.0 200")]:
        return Outcome("failed", case, f"a good client got {bad[0]!r}")
    if "Traceback" in errors.getvalue():
        said = errors.getvalue()
        errors.truncate(errors.seek(0))
        return Outcome("failed", case, said[-1500:])
    return Outcome("same", case)


def _asked(server: LocalServer, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=_PATIENCE) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {server.hosts[0]}\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def _silent(connection: socket.socket, host: str, rng: Random) -> None:
    """Connects and says nothing."""


def _half(connection: socket.socket, host: str, rng: Random) -> None:
    connection.sendall(f"GET / HTTP/1.0\r\nHost: {host}\r\n".encode()[: rng.randint(1, 30)])


def _reset(connection: socket.socket, host: str, rng: Random) -> None:
    connection.sendall(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _garbage(connection: socket.socket, host: str, rng: Random) -> None:
    connection.sendall(rng.randbytes(rng.randint(1, 5000)) + b"\r\n\r\n")


def _odd_form(connection: socket.socket, host: str, rng: Random) -> None:
    body = rng.choice([b"action=" + b"[" * 60_000, b"goal=" + b"9" * 5000, b"words=" + b"%ff" * 1000, b"&=&=;", b""])
    length = rng.choice([str(len(body)), "\u00b2", "-1", "9" * 5000, "", "65536", "1e3"])
    head = f"POST / HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n"
    connection.sendall(head.encode("latin-1") + body)


def _stranger(connection: socket.socket, host: str, rng: Random) -> None:
    connection.sendall(b"GET / HTTP/1.0\r\nHost: elsewhere.example\r\n\r\n")


def _many_headers(connection: socket.socket, host: str, rng: Random) -> None:
    connection.sendall(b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * 5000 + b"\r\n")


_CROWD: tuple[Client, ...] = (_silent, _half, _reset, _garbage, _odd_form, _stranger, _many_headers)


@contextmanager
def _running(server: LocalServer) -> Iterator[LocalServer]:
    with server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
