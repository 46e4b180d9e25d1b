"""Messages, fields and addresses of OpenEnv's protocol. Messages are untrusted.

Every OpenEnv environment has its own fields. A path such as `info.goal` or `messages.-1.content` names a field; without
one, the usual names are tried.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hgpo.envs.env_checker import LARGEST_REWARD, EnvContractError, is_texts, safe_repr

Json = dict[str, Any]


class BadMessage(ValueError):
    """An invalid message. `code` is one of OpenEnv's error codes."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def read_json(text: str | bytes) -> Json:
    """The object in a message.

    Raises:
        BadMessage: it is not JSON text, or not an object.
    """
    if isinstance(text, bytes):
        raise BadMessage("INVALID_JSON", "messages are text, and this one is binary")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage("INVALID_JSON", f"no JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage("INVALID_JSON", "a message is a JSON object with `type` and `data`")
    return message


def as_text(message: Mapping[str, Any]) -> str:
    """A message as JSON text.

    Raises:
        TypeError: a value is not serialisable.
        ValueError: a number is not finite.
    """
    return json.dumps(message, default=_plain, allow_nan=False)


def error_message(code: str, reason: str, **more: object) -> Json:
    """An error message for a client. `code` is one of OpenEnv's error codes."""
    return {"type": "error", "data": {"message": reason, "code": code, **more}}


def _plain(value: object) -> object:
    """Arrays and numbers of numpy, and sets, as values of JSON."""
    if callable(item := getattr(value, "tolist", None)):
        return item()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


USUAL_TEXTS = (
    "text",
    "observation",
    "messages.-1.content",
    "prompt",
    "echoed_message",
    "message",
    "content",
    "output",
    "stdout",
    "result",
)
USUAL_ACTIONS = ("text", "message", "command", "action", "action_str", "code")
_MOST_COMMANDS, _MOST_COMMAND_CHARACTERS = 1_000, 512
_CUT = " …"


@dataclass(frozen=True, slots=True)
class Fields:
    """Paths of the fields of an observation; with None the usual names are tried, and a missing field is left out.

    Attributes:
        text: the observation for the agent.
        task: the sentence that states the goal.
        commands: the list of admissible commands.
        won: whether the task is done. Without such a field, an episode is won if it ends with a reward of at least
            `win_reward`.
        score: the grade, from 0 to 1.
        win_reward: see `won`.
        most_characters: most characters of a text; a longer text is cut.
    """

    text: str | None = None
    task: str | None = None
    commands: str | None = None
    won: str | None = None
    score: str | None = None
    win_reward: float = 1.0
    most_characters: int = 20_000

    def read(self, data: Json) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated and info, as in `hgpo.envs.base.Env`.

        Raises:
            EnvContractError: the answer does not follow OpenEnv's protocol, or a named field is missing.
        """
        observation, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
        if not isinstance(observation, dict) or not isinstance(done, bool):
            raise EnvContractError("an answer needs `observation`, an object, and `done`, a bool")
        reward = _number("reward", 0.0 if reward is None else reward)
        truncated = done and observation.get("truncated") is True
        won = self._optional(observation, self.won, "won", bool)
        info = {key: value for key, value in observation.items() if key not in ("task", "score", "admissible_commands")}
        info["won"] = (done and not truncated and reward >= self.win_reward) if won is None else won
        task = self._optional(observation, self.task, "task", str)
        if task is not None:
            info["task"] = self._cut(task)
        commands = self._optional(observation, self.commands, "admissible_commands", list)
        if commands is not None and is_texts(commands):
            info["admissible_commands"] = [
                one for one in commands[:_MOST_COMMANDS] if len(one) <= _MOST_COMMAND_CHARACTERS
            ]
        score = self._optional(observation, self.score, "score", (int, float))
        if score is not None and (self.score is not None or 0.0 <= score <= 1.0):
            info["score"] = score
        return self._cut(self._text(observation)), reward, done and not truncated, truncated, info

    def _text(self, observation: Json) -> str:
        paths = USUAL_TEXTS if self.text is None else (self.text,)
        found = [text for text in (field_at(observation, path) for path in paths) if isinstance(text, str)]
        if not found:
            raise EnvContractError(
                f"no text at {', '.join(paths)}; the observation has {safe_repr(sorted(observation))}. Name the field "
                "with environment.options.text_field"
            )
        return next((text for text in found if text), "")

    def _optional(self, observation: Json, named: str | None, usual: str, kind: type | tuple[type, ...]) -> Any:
        """The value of a field; None if it is missing and was not named."""
        value = field_at(observation, named or usual)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        if named is not None:
            raise EnvContractError(f"field {named!r} is {safe_repr(value)}; see environment.options")
        return None

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.most_characters else text[: self.most_characters - len(_CUT)] + _CUT


def field_at(value: Any, path: str) -> Any:
    """The value at a path of names and indices; None if there is none.

    Example: `field_at({"messages": [{"content": "hi"}]}, "messages.-1.content") == "hi"`.
    """
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.lstrip("-").isdecimal():
            place = int(part) if len(part) < 10 else len(value)
            value = value[place] if -len(value) <= place < len(value) else None
        else:
            return None
    return value


def action_field(schema: Json | None) -> str | None:
    """The field for an action in the server's schema: a usual name, or the first required text."""
    properties = field_at(schema, "action.properties")
    if not isinstance(properties, dict):
        return None
    usual = [name for name in USUAL_ACTIONS if name in properties]
    required = field_at(schema, "action.required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    texts = [name for name in needed if field_at(properties, f"{name}.type") == "string"]
    return next(iter([name for name in usual if name in needed] or texts[:1] or usual), None)


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(number := float(value)) or abs(number) > LARGEST_REWARD:
        raise EnvContractError(
            f"{name} is {safe_repr(value)}, and has to be a number of a size up to {LARGEST_REWARD:g}"
        )
    return number


_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server.

    Attributes:
        host: its host name or IP address.
        port: its port.
        sessions: address of its WebSocket.
        pages: beginning of the addresses of its HTTP pages.
    """

    host: str
    port: int
    sessions: str
    pages: str


def parse_address(url: str, *, allow_remote: bool = False) -> Address:
    """Read the address of a server.

    Raises:
        ValueError: an invalid address, a password in it, or another machine without `allow_remote`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no address: {error}") from error
    if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is no address of a server; give one like http://127.0.0.1:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address contains a user or password, and runs store their address; remove them")
    if not allow_remote and not is_loopback(host):
        raise ValueError(
            f"{host} is another machine, whose texts a model would be trained on and which would see every action; "
            "if you trust it, set environment.options.allow_remote=true"
        )
    where = f"{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    scheme = _SCHEMES[parts.scheme]
    pages = f"{scheme.replace('ws', 'http')}://{where}"
    return Address(host, port or (443 if scheme == "wss" else 80), f"{scheme}://{where}/ws", pages)


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
