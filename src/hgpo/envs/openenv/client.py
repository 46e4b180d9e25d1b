"""A session at somebody's OpenEnv server. What it says is untrusted: bounded in length and time, and only ever data."""

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


GO_ON = "Start it again; `hgpo train --resume RUN` then goes on from the newest checkpoint"
TOO_MANY = (
    "Raise the server's number of sessions (`hgpo serve-env --max-sessions`; elsewhere max_concurrent_envs), or play "
    "fewer at once: rollout.tasks_per_update × rollout.group_size in training, up to 256 in an evaluation"
)
_CLOSE_SECONDS = 1.0


class RefusedByServer(EnvContractError):
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
            EnvContractError: nobody answers there, or not as OpenEnv does.
            ValueError: the package websockets is missing.
        """
        self._server = server
        self._socket = _connected(server)

    def ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Json:
        """Send a message and return the `data` of its answer.

        Raises:
            EnvContractError: there is no answer, or it says that the message cannot be carried out.
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
        raise EnvContractError(f"the server at {self._server.address.pages}: {what}. {remedy}")


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
        raise EnvContractError(
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


# An OpenEnv server's session as an environment: text in, text out.


@dataclass(frozen=True, slots=True)
class Play:
    """How every task of a server is played.

    Attributes:
        server: where.
        fields: what its answers mean.
        action_field: which field of an action is the command.
        same_start: whether two starts of one task must look the same.
    """

    server: Server
    fields: Fields
    action_field: str
    same_start: bool


@dataclass(slots=True)
class FirstSeen:
    """How a task began the last time, shared by all environments of that task in this process.

    Attributes:
        seed: of that reset.
        text: the first observation; None before the first reset.
    """

    seed: int | None = None
    text: str | None = None

    def check(self, seed: int | None, text: str) -> None:
        """Refuse another start of the same task with the same seed.

        Raises:
            EnvContractError: it began otherwise before.
        """
        if self.text is not None and self.seed == seed and self.text != text:
            raise EnvContractError(
                "the same task began in two ways, so the server does not reset by its seed, and rollouts of one group "
                "would not be comparable. If only words differ, set environment.options.same_start=false"
            )
        self.seed, self.text = seed, text


@dataclass(slots=True, weakref_slot=True)
class OpenEnvEnv:
    """One session: the first reset opens it; the end of an episode closes it, and so does garbage collection.

    Attributes:
        play: the server and how its answers are read.
        start: what a reset sends: a task by its number and split, or by its seed; with a number, the seed of `reset` is
            sent as well.
        first_seen: of the task.
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
            raise EnvContractError("the episode had ended before its first step; look at the server")
        if self.play.same_start:
            self.first_seen.check(asked.get("seed"), observation)
        self._running = True
        return observation, info

    def step(self, action: str) -> StepResult:
        """Carry out one action; `RuntimeError` before the first reset and after the end of an episode."""
        if not self._running or self._connection is None:
            raise RuntimeError("no episode is running; call reset() before step()")
        self._running = False
        result = self.play.fields.read(self._connection.ask("step", {self.play.action_field: action}))
        self._running = not (result[2] or result[3])
        if not self._running:
            self._connection.close()
            self._connection = None
        return result
