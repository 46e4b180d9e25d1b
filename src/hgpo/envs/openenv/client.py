"""An OpenEnv server's session as an environment.

The server is untrusted: its messages are limited in length and time, and used as data only.
"""

from __future__ import annotations

import socket
import urllib.request
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from hgpo.envs.base import StepResult
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.openenv.protocol import Address, BadMessage, Fields, Json, as_text, read_json
from hgpo.utils.text import visible

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection


RESTART = "Start it again; `hgpo train --resume RUN` then resumes from the newest checkpoint"
TOO_MANY = (
    "Raise the server's number of sessions (`hgpo serve-env --max-sessions`; elsewhere max_concurrent_envs), or play "
    "fewer at once: rollout.tasks_per_update × rollout.group_size in training, up to 256 in an evaluation"
)
_CLOSE_SECONDS = 1.0


class RefusedByServer(EnvContractError):
    """The server's own error. `code` is OpenEnv's error code."""

    code = ""


@dataclass(frozen=True, slots=True)
class Server:
    """Address and limits of a server.

    Attributes:
        address: see `parse_address`.
        timeout: most seconds until an answer.
        message_bytes: most bytes of an answer.
    """

    address: Address
    timeout: float
    message_bytes: int


class Connection:
    """One session; `close` ends it."""

    def __init__(self, server: Server) -> None:
        """Connect.

        Raises:
            EnvContractError: the server cannot be reached or does not follow the protocol.
            ValueError: the package websockets is missing.
        """
        self._server = server
        self._socket = _connected(server)

    def ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Json:
        """Send a message and return the `data` of its answer.

        Raises:
            EnvContractError: there is no valid answer, or it is an error.
        """
        from websockets.exceptions import ConnectionClosed

        message = {"type": kind} if data is None else {"type": kind, "data": data}
        with suppress(ConnectionClosed):  # messages from before the server closed can still be read
            self._socket.send(as_text(message))
        try:
            answer = read_json(self._socket.recv(timeout=self._server.timeout))
        except TimeoutError:
            self._fail(f"no answer to {kind!r} in {self._server.timeout:g} s", "Check the server. " + RESTART)
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == 1009:
                most = f"an answer is longer than {self._server.message_bytes} bytes"
                self._fail(most, "If that is right, raise environment.options.max_message_bytes")
            self._fail(f"the connection ended ({closed})", RESTART)
        except BadMessage as error:
            self._fail(str(error), "Is it an OpenEnv server?")
        content = answer.get("data")
        if not isinstance(content, dict):
            self._fail("an answer has no `data`", "Is it an OpenEnv server?")
        if answer.get("type") == "error":
            code, reason = visible(str(content.get("code")), 40), visible(str(content.get("message")), 500)
            remedy = TOO_MANY if code == "CAPACITY_REACHED" else "That is the server's own error"
            self.close()
            refused = RefusedByServer(f"the server at {self._server.address.pages}: {reason} ({code}). {remedy}")
            refused.code = code
            raise refused
        return content

    def close(self) -> None:
        """End the session."""
        self._socket.close()

    def _fail(self, what: str, remedy: str) -> NoReturn:
        self.close()
        raise EnvContractError(f"the server at {self._server.address.pages}: {what}. {remedy}")


def _connected(server: Server) -> ClientConnection:
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError as error:
        raise ValueError("OpenEnv servers need the package websockets: pip install 'hgpo[openenv]'") from error

    address = server.address
    try:
        # a socket made here prevents redirects to other machines and proxies
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
        raise EnvContractError(
            f"the server at {address.pages} cannot be reached ({visible(str(error))}). Is it running? "
            f"`hgpo serve-env NAME` starts one of this package's environments. {RESTART}"
        ) from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def read_page(server: Server, path: str) -> Json | None:
    """A JSON page of the server, such as "/schema"; None if there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
    try:
        with opener.open(server.address.pages + path, timeout=server.timeout) as answer:
            return read_json(answer.read(server.message_bytes).decode("utf-8"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Play:
    """Settings that all tasks of a server share.

    Attributes:
        server: the server.
        fields: the fields of its answers.
        action_field: the field of an action for the command.
        same_start: whether two resets of one task must give the same observation.
    """

    server: Server
    fields: Fields
    action_field: str
    same_start: bool


@dataclass(slots=True)
class FirstSeen:
    """The last reset of a task, shared by all environments of that task in this process.

    Attributes:
        seed: seed of the reset.
        text: the first observation; None before the first reset.
    """

    seed: int | None = None
    text: str | None = None

    def check(self, seed: int | None, text: str) -> None:
        """Compare a first observation with the last one of the same seed.

        Raises:
            EnvContractError: they differ.
        """
        if self.text is not None and self.seed == seed and self.text != text:
            raise EnvContractError(
                "the same task began in two ways: the server does not reset by its seed, and rollouts of one group "
                "would not be comparable. If only words differ, set environment.options.same_start=false"
            )
        self.seed, self.text = seed, text


@dataclass(slots=True, weakref_slot=True)
class OpenEnvEnv:
    """One session, opened by the first reset and closed at the end of an episode or by garbage collection.

    Attributes:
        play: the shared settings.
        start: data of a reset message: a split and a number, or a seed; with a number, the seed of `reset` is added.
        first_seen: the last reset of the task.
    """

    play: Play
    start: Mapping[str, Any]
    first_seen: FirstSeen
    _connection: Connection | None = None
    _running: bool = field(default=False, init=False)

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over."""
        if self._connection is None:
            self._connection = Connection(self.play.server)
            weakref.finalize(self, self._connection.close)
        asked = {"seed": seed, **self.start} if seed is not None else dict(self.start)
        observation, _, terminated, truncated, info = self.play.fields.read(self._connection.ask("reset", asked))
        if terminated or truncated:
            raise EnvContractError("the episode ended before its first step; check the server")
        if self.play.same_start:
            self.first_seen.check(asked.get("seed"), observation)
        self._running = True
        return observation, info

    def step(self, action: str) -> StepResult:
        """Apply one action; `RuntimeError` before the first reset and after the end of an episode."""
        if not self._running or self._connection is None:
            raise RuntimeError("no episode is running; call reset() before step()")
        self._running = False
        result = self.play.fields.read(self._connection.ask("step", {self.play.action_field: action}))
        self._running = not (result[2] or result[3])
        if not self._running:
            self._connection.close()
            self._connection = None
        return result
