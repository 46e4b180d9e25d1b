"""Serves an environment over OpenEnv's WebSocket protocol: one session per connection, with limits on every client.

All steps run one after another in the server's one thread; sessions share only the tasks. The server refuses browsers,
which name their page's origin, so no web page can reach a server on this machine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from hgpo.envs.openenv.address import is_loopback
from hgpo.envs.openenv.messages import BadMessage, Json, as_text, error_message, read_json
from hgpo.envs.openenv.session import ACTION_FIELD, Served, Session

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

LOOPBACK = "127.0.0.1"
PATH = "/ws"
_OPEN_SECONDS, _CLOSE_SECONDS = 10.0, 2.0
_TEXT: Json = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may use.

    Attributes:
        sessions: most at a time; a further client gets an error and no session.
        message_bytes: longest message of a client, in bytes; a longer one ends its session.
        idle_seconds: a session ends after this time without a message, or with an answer that the client does not read.
    """

    sessions: int = 256
    message_bytes: int = 1 << 16
    idle_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name, most in {"sessions": 65_536, "message_bytes": 1 << 30, "idle_seconds": 10**7}.items():
            value = getattr(self, name)
            if not 0 < value <= most:
                raise ValueError(f"{name.replace('_', '-')} = {value}: give a number above 0, {most} at most")


class EnvironmentServer:
    """Serves tasks to OpenEnv's clients.

    Example:
        async with EnvironmentServer(served, Limits()).listening("127.0.0.1", 8000) as address:
            await asyncio.get_running_loop().create_future()
    """

    def __init__(self, served: Served, limits: Limits) -> None:
        self._served = served
        self._limits = limits
        self._sessions = 0
        self._hosts: frozenset[str] | None = None

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[str]:
        """Listen while the context lasts, and yield the address; port 0 takes a free one.

        Raises:
            ValueError: the port cannot be opened.
            ImportError: the package websockets is missing.
        """
        from websockets.asyncio.server import serve

        try:
            server: Server = await serve(
                self._play,
                host,
                port,
                origins=[None],
                compression=None,
                max_size=self._limits.message_bytes,
                open_timeout=_OPEN_SECONDS,
                close_timeout=_CLOSE_SECONDS,
                ping_interval=None,  # a client that computes for minutes answers no ping; idle_seconds ends it
                process_request=self._before_the_session,
                server_header=None,
            )
        except (OSError, OverflowError) as error:
            raise ValueError(f"port {port} on {host}: {error}; choose another, or 0 for any free one") from error
        async with server:
            port = next(iter(server.sockets)).getsockname()[1]
            if is_loopback(host):
                self._hosts = frozenset(f"{name}:{port}" for name in (LOOPBACK, "localhost", "[::1]", host))
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _before_the_session(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a plain HTTP request; None lets a session begin."""
        if self._hosts is not None and request.headers.get("Host", "") not in self._hosts:
            return connection.respond(HTTPStatus.FORBIDDEN, "This server is for its own machine.\n")
        path = request.path.partition("?")[0]
        if path == PATH:
            return None
        if path not in (pages := self._pages()):
            return connection.respond(HTTPStatus.NOT_FOUND, f"Sessions are at {PATH}.\n")
        response = connection.respond(HTTPStatus.OK, json.dumps(pages[path]) + "\n")
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    def _pages(self) -> dict[str, Any]:
        """The pages that OpenEnv's tools read before they play."""
        state = dict.fromkeys(("episode_id", "environment", "split", "task_id"), _TEXT)
        whole, truth = {"type": "integer"}, {"type": "boolean"}
        return {
            "/health": {"status": "healthy"},
            "/metadata": {
                "name": self._served.name,
                "description": "A text environment of hgpo",
                "version": version("hgpo"),
            },
            "/schema": {
                "action": _object({ACTION_FIELD: _TEXT}, ACTION_FIELD),
                "observation": _object({"text": _TEXT, "won": truth, "truncated": truth, "task": _TEXT}, "text"),
                "state": _object({**state, "step_count": whole, "splits": {"type": "object"}}),
            },
        }

    async def _play(self, connection: ServerConnection) -> None:
        """One client, from its first message to its last."""
        from websockets.exceptions import ConnectionClosed

        most = self._limits.sessions
        try:
            if self._sessions >= most:
                reason = f"all {most} sessions are taken; come again later"
                await self._send(connection, as_text(error_message("CAPACITY_REACHED", reason, max_sessions=most)))
                return
            self._sessions += 1
            try:
                await self._answer_all(connection, Session(self._served))
            finally:
                self._sessions -= 1
        except (ConnectionClosed, TimeoutError):
            return  # the client closed the connection or does not read its answers

    async def _answer_all(self, connection: ServerConnection, session: Session) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    received = await connection.recv()
            except TimeoutError:
                reason = f"the session ended after {self._limits.idle_seconds:g} s without a message"
                await self._send(connection, as_text(error_message("SESSION_ERROR", reason)))
                return
            answer = _answer(session, received)
            if answer is None:
                return
            await self._send(connection, answer)

    async def _send(self, connection: ServerConnection, text: str) -> None:
        async with asyncio.timeout(self._limits.idle_seconds):
            await connection.send(text)


def _answer(session: Session, received: str | bytes) -> str | None:
    """The answer to a message, as text; None ends the session."""
    try:
        answer = session.answer(read_json(received))
    except BadMessage as error:
        return as_text(error_message(error.code, str(error)))
    try:
        return None if answer is None else as_text(answer)
    except (TypeError, ValueError) as error:
        return as_text(error_message("EXECUTION_ERROR", f"the environment's info cannot be sent: {error}"))


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}
