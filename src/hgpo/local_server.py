"""A small server for this machine's own browser: what every page that is served here has in common.

It listens on 127.0.0.1 and answers only requests that name that address, so no page of another site can read what is
served through a visitor's browser (DNS rebinding). Clients are untrusted: one that is slow, silent, broken or there
many times over costs itself its answer and nobody else theirs.
"""

from __future__ import annotations

import socket
import sys
from collections import OrderedDict
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

ADDRESS = "127.0.0.1"
MOST_CONNECTIONS = 128
READ_TIMEOUT = 10.0  # seconds of silence
LARGEST_BODY = 1 << 16  # bytes
_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LocalServer(ThreadingHTTPServer):
    """Answers on 127.0.0.1 from a thread each, to at most `most_connections` clients at a time: the oldest gives way.

    Example: `with LocalServer(Handler, port=8000) as server: server.serve_forever()`, where `Handler` is a
    `LocalHandler`.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS  # the library's 5 turn away a browser that opens many pages at once

    def __init__(
        self,
        handler: type[LocalHandler],
        port: int = 0,
        *,
        most_connections: int = MOST_CONNECTIONS,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        """Take `port`; 0 takes a free one, and `server_port` tells which.

        Raises:
            ValueError: there is no such port, or it cannot be had.
        """
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port {port}: ports are 1 to 65535, or 0 for any free one")
        self.read_timeout = read_timeout
        self._most_connections = most_connections
        self._open: OrderedDict[int, socket.socket] = OrderedDict()
        self._open_lock = Lock()
        try:
            super().__init__((ADDRESS, port), handler)
        except OSError as error:
            raise ValueError(f"port {port}: {error.strerror}; choose another, or 0 for any free one") from error

    @property
    def hosts(self) -> tuple[str, str]:
        """What a request's Host may be."""
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a client its thread; where there are too many, the one that came first loses its own."""
        with self._open_lock:
            self._open[id(request)] = request
            oldest = self._open.popitem(last=False)[1] if len(self._open) > self._most_connections else None
        if oldest is not None:
            _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a client whose answer is given."""
        with self._open_lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up or fell silent is no error; anything else is told with its traceback."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class LocalHandler(BaseHTTPRequestHandler):
    """One request. Subclasses have `do_GET` and `do_POST`, begin them with `trusted()` and end them with an answer."""

    server: LocalServer
    server_version, sys_version = "hgpo", ""

    def setup(self) -> None:
        """Wait so long for a silent client, and no longer."""
        self.request.settimeout(self.server.read_timeout)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the user's."""

    def trusted(self) -> bool:
        """Whether the request comes from this machine's browser and from our own pages; if not, it is refused here."""
        origin = self.headers.get("Origin")
        own = [f"http://{host}" for host in self.server.hosts]
        if self.headers.get("Host") in self.server.hosts and (origin is None or origin in own):
            return True
        self.refuse(HTTPStatus.FORBIDDEN, "This address is for this machine's browser only.")
        return False

    def body(self) -> bytes | None:
        """What came with the request, if its length is stated and bearable; if not, it is refused here."""
        length = whole_number(self.headers.get("Content-Length", ""))
        if length is None or length > LARGEST_BODY:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large, or does not say how large it is.")
            return None
        content = self.rfile.read(length)
        if len(content) < length:
            self.refuse(HTTPStatus.BAD_REQUEST, "The form ended early.")
            return None
        return content

    def answer(
        self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send `content` of the media type `kind`."""
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            **_ALWAYS,
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def redirect(self, path: str) -> None:
        """Have the browser ask for `path`."""
        self.answer(b"", "text/plain", HTTPStatus.SEE_OTHER, {"Location": path})

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        """Say why there is no other answer, and hang up."""
        self.close_connection = True
        self.answer(f"{status.value} {status.phrase}\n{reason}\n".encode(), "text/plain", status)


def whole_number(text: str) -> int | None:
    """What a stranger's text says in at most nine ASCII digits; None if it says anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up, finds nobody there and ends
    except OSError:
        return  # it has ended by itself meanwhile
