"""An OpenEnv server's session as an environment.

The server is untrusted: its messages are limited in length and time, and used as data only.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Timer
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from hgpo.envs.base import StepResult, check_action
from hgpo.envs.env_checker import LARGEST_REWARD, EnvContractError, is_texts, is_tools
from hgpo.envs.openenv.protocol import Address, BadMessage, Json, as_text, parse_message
from hgpo.utils.text import safe_repr, visible

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection


RESTART = "Start it again; `hgpo train --resume RUN` then resumes from the newest checkpoint"
TOO_MANY = (
    "Raise the server's number of sessions (`hgpo serve-env --max-sessions`; elsewhere max_concurrent_envs), or play "
    "fewer episodes at once: rollout.tasks_per_update × rollout.group_size in training, up to 256 in an evaluation"
)
_CLOSE_SECONDS = 1.0
MOST_BYTES = 1 << 20
"""The maximum size of a server's message, in bytes."""


class RefusedByServer(EnvContractError):
    """An error of the server's environment: OpenEnv's error code is EXECUTION_ERROR."""


class Connection:
    """One session; `close` ends it."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Connect; an answer may take `timeout` seconds.

        Raises:
            EnvContractError: the server cannot be reached or does not follow the protocol.
            ValueError: the package websockets is missing.
        """
        self._address, self._timeout = address, timeout
        self._socket = _connected(address, timeout)

    def ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Json:
        """Send a message and return the `data` of its answer.

        Raises:
            EnvContractError: there is no valid answer, or the answer is an error.
        """
        from websockets.exceptions import ConnectionClosed

        message = {"type": kind} if data is None else {"type": kind, "data": data}
        with suppress(ConnectionClosed):  # messages from before the server closed can still be read
            self._socket.send(as_text(message))
        try:
            answer = parse_message(self._socket.recv(timeout=self._timeout))
        except TimeoutError:
            self._fail(f"no answer to {kind!r} in {self._timeout:g} s", "Check the server. " + RESTART)
        except ConnectionClosed as closed:
            if closed.sent is not None and closed.sent.code == 1009:
                self._fail(f"an answer is longer than {MOST_BYTES} bytes", "Is it a text environment?")
            self._fail(f"the connection ended ({closed})", RESTART)
        except BadMessage as error:
            self._fail(str(error), "Is it an OpenEnv server?")
        content = answer.get("data")
        if not isinstance(content, dict):
            self._fail("an answer has no `data`", "Is it an OpenEnv server?")
        if answer.get("type") == "error":
            code, reason = visible(str(content.get("code")), 40), visible(str(content.get("message")), 500)
            remedy = TOO_MANY if code == "CAPACITY_REACHED" else "That is the server's own error"
            self._fail(f"{reason} ({code})", remedy, RefusedByServer if code == "EXECUTION_ERROR" else EnvContractError)
        return content

    def close(self) -> None:
        """End the session."""
        self._socket.close()

    def _fail(self, what: str, remedy: str, kind: type[EnvContractError] = EnvContractError) -> NoReturn:
        self.close()
        raise kind(f"the server at {self._address.pages}: {what}. {remedy}")


def _connected(address: Address, timeout: float) -> ClientConnection:
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError as error:
        raise ValueError("OpenEnv servers need the package websockets: pip install 'hgpo[openenv]'") from error

    try:
        # a socket made here prevents redirects to other machines and proxies
        raw = socket.create_connection((address.host, address.port), timeout=timeout)
        return connect(
            address.sessions,
            sock=raw,
            max_size=MOST_BYTES,
            open_timeout=timeout,
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


def read_page(address: Address, path: str, timeout: float) -> Json | None:
    """A JSON page of the server, such as "/schema"; None if it cannot be read within `timeout` seconds.

    Follows no redirect and uses no proxy.
    """
    base = urlsplit(address.pages)
    make = HTTPSConnection if base.scheme == "https" else HTTPConnection
    connection = make(address.host, address.port, timeout=timeout)
    try:
        connection.connect()
        # The connection's own time-out starts anew with each byte.
        end = Timer(timeout, connection.sock.shutdown, [socket.SHUT_RDWR])
        end.start()
        try:
            connection.request("GET", base.path + path)
            answer = connection.getresponse()
            return parse_message(answer.read(MOST_BYTES).decode("utf-8")) if answer.status == HTTPStatus.OK else None
        finally:
            end.cancel()
    except (OSError, ValueError, HTTPException):
        return None
    finally:
        connection.close()


USUAL_TEXTS = (
    "text", "observation", "messages", "prompt", "echoed_message", "message", "content", "output", "stdout", "result",
)  # fmt: skip
USUAL_ACTIONS = ("text", "message", "command", "action", "action_str", "code")
_MOST_CHARACTERS = 20_000
_MOST_COMMANDS, _MOST_COMMAND_CHARACTERS = 1_000, 512
_CUT = " …"


def action_field(schema: Json | None) -> str | None:
    """The field for an action in a server's schema: a usual name, or the first required text."""
    action = (schema or {}).get("action")
    properties = action.get("properties") if isinstance(action, dict) else None
    if not isinstance(action, dict) or not isinstance(properties, dict):
        return None
    usual = [name for name in USUAL_ACTIONS if name in properties]
    required = action.get("required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    texts = [name for name in needed if isinstance(one := properties.get(name), dict) and one.get("type") == "string"]
    return next(iter([name for name in usual if name in needed] or texts[:1] or usual), None)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings that all tasks of a server share.

    Attributes:
        address: address of the server.
        timeout: most seconds until an answer.
        action_field: the field of an action for the command.
        text_field: the field of an observation for its text; with None the usual names are tried.
        win_reward: without a field `won`, an episode is won if it ends with at least this reward.
        same_start: whether two resets of one task must give the same observation.
    """

    address: Address
    timeout: float
    action_field: str
    text_field: str | None = None
    win_reward: float = 1.0
    same_start: bool = True

    def read(self, data: Json) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated and info of an answer, as in `hgpo.envs.base.Env`.

        Fields `task`, `admissible_commands`, `tools`, `state_key` and `score` of the wrong type are left out, as are
        commands and tools that are too long. Without a bool `won`, the reward decides (see `win_reward`).

        Raises:
            EnvContractError: the answer does not follow OpenEnv's protocol, or has no text.
        """
        observation, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
        if not isinstance(observation, dict) or not isinstance(done, bool):
            raise EnvContractError("an answer needs `observation`, an object, and `done`, a bool")
        reward = _number(0.0 if reward is None else reward)
        truncated = done and observation.get("truncated") is True
        info = dict(observation)
        if not isinstance(info.get("won"), bool):
            info["won"] = done and not truncated and reward >= self.win_reward
        if isinstance(task := info.pop("task", None), str):
            info["task"] = _shortened(task)
        if is_texts(commands := info.pop("admissible_commands", None)):
            info["admissible_commands"] = [
                one for one in commands[:_MOST_COMMANDS] if len(one) <= _MOST_COMMAND_CHARACTERS
            ]
        if "tools" in info and not (is_tools(info["tools"]) and len(str(info["tools"])) <= _MOST_CHARACTERS):
            del info["tools"]
        if not isinstance(info.get("state_key", ""), str):
            del info["state_key"]
        score = info.pop("score", None)
        if isinstance(score, int | float) and not isinstance(score, bool) and 0.0 <= score <= 1.0:
            info["score"] = score
        return _shortened(self._text(observation)), reward, done and not truncated, truncated, info

    def _text(self, observation: Json) -> str:
        names = USUAL_TEXTS if self.text_field is None else (self.text_field,)
        found = [text for text in (_text_of(observation.get(name)) for name in names) if text is not None]
        if not found:
            raise EnvContractError(
                f"no text at {', '.join(names)}; the observation has {safe_repr(sorted(observation))}. Name the field "
                "with environment.options.text_field"
            )
        return next((text for text in found if text), "")


def _text_of(value: object) -> str | None:
    """A text, or the content of the last of a list of chat messages; None for other values."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return value if isinstance(value, str) else None


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - len(_CUT)] + _CUT


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not -LARGEST_REWARD <= value <= LARGEST_REWARD:  # also for NaN
        raise EnvContractError(f"reward must be a number of magnitude up to {LARGEST_REWARD:g}, got {safe_repr(value)}")
    return float(value)


@dataclass(slots=True, weakref_slot=True)
class OpenEnvEnv:
    """One session, opened by a reset and closed at the end of the episode or by garbage collection.

    Attributes:
        play: the shared settings.
        start: data of a reset message: a split and a number, or a seed; with a number, the seed of `reset` is added.
        first_seen: seed -> first observation of the task's last reset, shared by all environments of the task.
    """

    play: ServerSettings
    start: Mapping[str, Any]
    first_seen: dict[int | None, str]
    _connection: Connection | None = None
    _close: Callable[[], object] = field(default=lambda: None, init=False)
    _running: bool = field(default=False, init=False)

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start a new episode."""
        self._running = False
        if self._connection is None:
            self._connection = Connection(self.play.address, self.play.timeout)
            self._close = weakref.finalize(self, self._connection.close)
        asked = {"seed": seed, **self.start} if seed is not None else dict(self.start)
        observation, _, terminated, truncated, info = self._ask(self._connection, "reset", asked)
        if terminated or truncated:
            raise EnvContractError("the episode ended before its first step; check the server")
        if self.play.same_start:
            self._check_start(asked.get("seed"), observation)
        self._running = True
        return observation, info

    def _check_start(self, seed: int | None, observation: str) -> None:
        if self.first_seen.get(seed, observation) != observation:
            raise EnvContractError(
                "two resets of this task gave different observations: the server's reset ignores the seed, so rollouts "
                "of a group are not comparable. If only the wording differs, set environment.options.same_start=false"
            )
        self.first_seen.clear()
        self.first_seen[seed] = observation

    def step(self, action: str) -> StepResult:
        """Apply one action; `RuntimeError` before the first reset and after the end of an episode."""
        check_action(action, self._running)
        assert self._connection is not None, "an episode is running"
        self._running = False
        result = self._ask(self._connection, "step", {self.play.action_field: action})
        self._running = not (result[2] or result[3])
        if not self._running:
            self._end()
        return result

    def _ask(self, connection: Connection, kind: str, data: Json) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The answer to a message; an error ends the session, and the next reset opens another."""
        try:
            return self.play.read(connection.ask(kind, data))
        except EnvContractError:
            self._end()
            raise

    def _end(self) -> None:
        self._close()
        self._connection = None
