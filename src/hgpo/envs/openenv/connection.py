"""A session at somebody's OpenEnv server. What it says is untrusted: bounded in length and time, and only ever data."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from hgpo.envs.contract import EnvironmentFault
from hgpo.envs.openenv.address import Address
from hgpo.envs.openenv.messages import BadMessage, Json, as_text, read_json
from hgpo.visible import visible

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

GO_ON = "Start it again; `hgpo train --resume RUN` then goes on from the newest checkpoint"
TOO_MANY = (
    "Raise the server's number of sessions (`hgpo serve-env --max-sessions`; elsewhere max_concurrent_envs), or play "
    "fewer at once: rollout.tasks_per_update × rollout.group_size in training, up to 256 in an evaluation"
)
_CLOSE_SECONDS = 1.0


class RefusedByServer(EnvironmentFault):
    """The server's own error. `code` is OpenEnv's word for it."""

    code = ""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is and how much is taken from it.

    Attributes:
        address: see `parse_address`.
        timeout: seconds to wait for an answer.
        message_bytes: longest answer.
    """

    address: Address
    timeout: float
    message_bytes: int


class Connection:
    """One session; `close` ends it."""

    def __init__(self, server: Server) -> None:
        """Connect.

        Raises:
            EnvironmentFault: nobody answers there, or not as OpenEnv does.
            ValueError: the package websockets is missing.
        """
        self._server = server
        self._socket = _connected(server)

    def ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Json:
        """Send a message and return the `data` of its answer.

        Raises:
            EnvironmentFault: there is no answer, or it says that the message cannot be carried out.
        """
        from websockets.exceptions import ConnectionClosed

        message = {"type": kind} if data is None else {"type": kind, "data": data}
        with suppress(ConnectionClosed):  # what the server said before it hung up can still be read
            self._socket.send(as_text(message))
        try:
            answer = read_json(self._socket.recv(timeout=self._server.timeout))
        except TimeoutError:
            self._fail(f"no answer to {kind!r} in {self._server.timeout:g} s", "Look at the server. " + GO_ON)
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == 1009:
                most = f"an answer is longer than {self._server.message_bytes} bytes"
                self._fail(most, "If that is right, raise environment.options.max_message_bytes")
            self._fail(f"the connection ended ({closed})", GO_ON)
        except BadMessage as error:
            self._fail(str(error), "Is it an OpenEnv server?")
        told = answer.get("data")
        if not isinstance(told, dict):
            self._fail("an answer has no `data`", "Is it an OpenEnv server?")
        if answer.get("type") == "error":
            code, reason = visible(str(told.get("code")), 40), visible(str(told.get("message")), 500)
            remedy = TOO_MANY if code == "CAPACITY_REACHED" else "That is the server's own error"
            self.close()
            refused = RefusedByServer(f"the server at {self._server.address.pages}: {reason} ({code}). {remedy}")
            refused.code = code
            raise refused
        return told

    def close(self) -> None:
        """End the session; the server may be gone already."""
        self._socket.close()

    def _fail(self, what: str, remedy: str) -> NoReturn:
        self.close()
        raise EnvironmentFault(f"the server at {self._server.address.pages}: {what}. {remedy}")


def _connected(server: Server) -> ClientConnection:
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError as error:
        raise ValueError("OpenEnv servers need the package websockets: pip install 'hgpo[openenv]'") from error

    address = server.address
    try:
        # a socket of our own keeps the library from following a redirect to another machine, and from proxies
        raw = socket.create_connection((address.host, address.port), timeout=server.timeout)
        return connect(
            address.sessions,
            sock=raw,
            max_size=server.message_bytes,
            open_timeout=server.timeout,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=None,
            compression=None,
            proxy=None,
        ).__enter__()
    except (OSError, ValueError, WebSocketException) as error:
        raise EnvironmentFault(
            f"the server at {address.pages} cannot be reached ({visible(str(error))}). Is it running? "
            f"`hgpo serve-env NAME` starts one of this package's environments. {GO_ON}"
        ) from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def read_page(server: Server, path: str) -> Json | None:
    """A JSON page of the server, such as "/schema"; None where it has none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
    try:
        with opener.open(server.address.pages + path, timeout=server.timeout) as answer:
            return read_json(answer.read(server.message_bytes).decode("utf-8"))
    except (OSError, ValueError):
        return None  # it has no such page, or none that can be read
