"""Serves an environment over OpenEnv's WebSocket protocol, one session per connection, with limits for clients.

All steps run one after another in the server's thread; sessions share only the tasks. Requests of browsers, which name
their page's origin, are rejected, so that no web page can reach a server on this machine. `ClientSession` performs no
I/O.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Any

from hgpo.envs.base import LARGEST_SEED, Env, Info, Task, TaskSuite
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.openenv.protocol import BadMessage, Json, as_text, error_message, is_loopback, parse_message

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response


MOST_ID_CHARACTERS = 255
ACTION_FIELD = "text"


class Served:
    """The tasks of a server: the splits of a suite."""

    def __init__(self, name: str, suite: TaskSuite, splits: Sequence[str]) -> None:
        """Look up the tasks of every split, which may generate them; no split may be empty."""
        self.name = name
        self._tasks: dict[str, Sequence[Task]] = {split: suite.tasks(split) for split in splits}
        self._turns = count()
        self._episodes = count()

    @property
    def sizes(self) -> dict[str, int]:
        """Split -> number of tasks."""
        return {split: len(tasks) for split, tasks in self._tasks.items()}

    def choose(self, wanted: Mapping[str, Any]) -> tuple[str, Task]:
        """The split and task of a reset message: by number, else by seed, else the next task.

        Raises:
            BadMessage: the split or the task does not exist, or the suite cannot make the task.
        """
        split = wanted.get("split", next(iter(self._tasks)))
        if not isinstance(split, str) or split not in self._tasks:
            raise BadMessage("VALIDATION_ERROR", f"split: this server has {', '.join(self._tasks)}")
        tasks = self._tasks[split]
        number = wanted.get("task")
        if number is None:
            seed = wanted.get("seed")
            number = (next(self._turns) if seed is None else seed) % len(tasks)
        if not _is_whole(number) or not 0 <= number < len(tasks):
            raise BadMessage("VALIDATION_ERROR", f"task: split {split!r} has tasks 0 to {len(tasks) - 1}")
        try:
            return split, tasks[number]
        except ValueError as error:  # of a suite that makes its tasks on access
            raise BadMessage("EXECUTION_ERROR", str(error)) from error

    def episode_id(self) -> str:
        """A new id for an episode without one."""
        return f"episode-{next(self._episodes)}"


@dataclass(slots=True)
class ClientSession:
    """The session of one client. `answer` takes its messages in order."""

    served: Served
    _environment: Env | None = None
    _running: bool = False
    _state: Json = field(default_factory=lambda: {"episode_id": None, "step_count": 0, "split": None, "task_id": None})

    def answer(self, message: Mapping[str, Any]) -> Json | None:
        """The answer to a message; None ends the session.

        Raises:
            BadMessage: the message is invalid, which does not change the session, or the environment failed.
        """
        kind, data = message.get("type"), message.get("data", {})
        if not isinstance(data, dict):
            raise BadMessage("VALIDATION_ERROR", "data: give an object")
        if kind == "reset":
            return self._reset(data)
        if kind == "step":
            return self._step(data)
        if kind == "state":
            whole = {**self._state, "environment": self.served.name, "splits": self.served.sizes}
            return {"type": "state", "data": whole}
        if kind == "close":
            return None
        raise BadMessage("UNKNOWN_TYPE", "a message's type is reset, step, state or close")

    def _reset(self, data: Json) -> Json:
        _check_keys(data, ("seed", "episode_id", "split", "task"))
        seed, name = data.get("seed"), data.get("episode_id")
        if seed is not None and not (_is_whole(seed) and 0 <= seed <= LARGEST_SEED):
            raise BadMessage("VALIDATION_ERROR", "seed: give a whole number, 0 or more")
        if name is not None and not (isinstance(name, str) and len(name) <= MOST_ID_CHARACTERS):
            raise BadMessage("VALIDATION_ERROR", f"episode_id: give text of at most {MOST_ID_CHARACTERS} characters")
        split, task = self.served.choose(data)
        self._running = False
        try:
            self._environment = task.make()
            observation, info = self._environment.reset(seed=seed)
        except EnvContractError as error:
            raise BadMessage("EXECUTION_ERROR", str(error)) from error
        self._running = True
        name = name or self.served.episode_id()
        self._state = {"episode_id": name, "step_count": 0, "split": split, "task_id": task.id}
        return _observed(observation, None, info)

    def _step(self, data: Json) -> Json:
        _check_keys(data, (ACTION_FIELD, "metadata"))
        action = data.get(ACTION_FIELD)
        if not isinstance(action, str):
            raise BadMessage("VALIDATION_ERROR", f"{ACTION_FIELD}: give the command as text")
        if self._environment is None or not self._running:
            raise BadMessage("EXECUTION_ERROR", "no episode is running; send reset first")
        try:
            observation, reward, terminated, truncated, info = self._environment.step(action)
        except EnvContractError as error:
            self._running = False
            raise BadMessage("EXECUTION_ERROR", str(error)) from error
        self._running = not (terminated or truncated)
        self._state["step_count"] += 1
        return _observed(observation, float(reward), info, done=not self._running, truncated=bool(truncated))


def _observed(text: str, reward: float | None, info: Info, *, done: bool = False, truncated: bool = False) -> Json:
    """An answer with the text and the values of `info` except the exact state, which no policy may see."""
    shown = {name: value for name, value in info.items() if name != "state_key"}
    observation = {**shown, "won": bool(info["won"]), "truncated": truncated, "text": text}
    return {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}


def _check_keys(data: Json, known: tuple[str, ...]) -> None:
    if unknown := sorted(set(data) - set(known)):
        raise BadMessage("VALIDATION_ERROR", f"{unknown[0][:80]!r} is unknown; known are {', '.join(known)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


LOOPBACK = "127.0.0.1"
PATH = "/ws"
_OPEN_SECONDS, _CLOSE_SECONDS = 10.0, 2.0
_TEXT: Json = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients.

    Attributes:
        sessions: maximum number of concurrent sessions; further clients get an error.
        message_bytes: maximum size of a message in bytes; a longer message ends the session.
        idle_seconds: seconds without a message, or with an unread answer, after which a session ends.
    """

    sessions: int = 256
    message_bytes: int = 1 << 16
    idle_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name, most in {"sessions": 65_536, "message_bytes": 1 << 30, "idle_seconds": 10**7}.items():
            value = getattr(self, name)
            if not 0 < value <= most:
                raise ValueError(f"{name.replace('_', '-')} = {value}: give a number above 0 and at most {most}")


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
        """Listen while the context lasts; yields the address. Port 0 takes a free port.

        Raises:
            ValueError: the port cannot be opened.
            ImportError: the package websockets is missing.
        """
        from websockets.asyncio.server import serve

        try:
            server: Server = await serve(
                self._serve_client,
                host,
                port,
                origins=[None],
                compression=None,
                max_size=self._limits.message_bytes,
                open_timeout=_OPEN_SECONDS,
                close_timeout=_CLOSE_SECONDS,
                ping_interval=None,  # a client that computes for minutes answers no ping; idle_seconds ends it
                process_request=self._http_response,
                server_header=None,
            )
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"cannot listen on {host}, port {port}: {error}; choose another host or port (0: any free port)"
            ) from error
        async with server:
            port = next(iter(server.sockets)).getsockname()[1]
            if is_loopback(host):
                self._hosts = own_hosts(host, port)
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def _http_response(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a plain HTTP request; None starts a session."""
        if self._hosts is not None and request.headers.get("Host", "") not in self._hosts:
            return connection.respond(HTTPStatus.FORBIDDEN, "This server answers only requests from its own machine.\n")
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
        """The HTTP pages that OpenEnv's clients read before a session."""
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

    async def _serve_client(self, connection: ServerConnection) -> None:
        """Serve one client until its session ends."""
        from websockets.exceptions import ConnectionClosed

        most = self._limits.sessions
        try:
            if self._sessions >= most:
                reason = f"all {most} sessions are in use; try again later"
                await self._send(connection, as_text(error_message("CAPACITY_REACHED", reason, max_sessions=most)))
                return
            self._sessions += 1
            try:
                await self._answer_all(connection, ClientSession(self._served))
            finally:
                self._sessions -= 1
        except (ConnectionClosed, TimeoutError):
            return  # the client closed the connection or does not read its answers

    async def _answer_all(self, connection: ServerConnection, session: ClientSession) -> None:
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


def _answer(session: ClientSession, received: str | bytes) -> str | None:
    """The answer to a message, as text; None ends the session."""
    try:
        answer = session.answer(parse_message(received))
    except BadMessage as error:
        return as_text(error_message(error.code, str(error)))
    try:
        return None if answer is None else as_text(answer)
    except (TypeError, ValueError) as error:
        return as_text(error_message("EXECUTION_ERROR", f"the environment's info cannot be sent: {error}"))


def own_hosts(host: str, port: int) -> frozenset[str]:
    """The values of the header `Host` that name this machine; clients leave out port 80."""
    names = (LOOPBACK, "localhost", "[::1]", host)
    return frozenset(f"{name}:{port}" for name in names) | frozenset(names if port == 80 else ())


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}
