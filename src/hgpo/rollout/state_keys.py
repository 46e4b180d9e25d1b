"""State keys: the texts by which states are compared. `rollout.state` names one.

A state key is a function of a `Visit` that returns text, or a class, whose instances are called with the visits of one
episode in order of time. It is called when a step is recorded, so the recorded `observation` is the key; only the JSON
fields that "json" leaves out are found later, in a whole batch (`hgpo.rollout.keyed_steps`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hgpo.envs.env_checker import EnvContractError, exact_state, wrapped_error
from hgpo.keys import canonical_json
from hgpo.messages import THOUGHT_TAG, without_thoughts
from hgpo.plugins import BREAKS, Registry
from hgpo.tool_calls import escape_in_calls, json_of_calls
from hgpo.utils.text import safe_repr

JSON, TOOL_CALL = "json", "tool_call"
COMMANDS_FOLLOW = "\nPossible: "
"""Separates the observation from the commands in a key."""

FAILED = "Nothing happens"
"""The answer of household games to a command without effect."""

UNSEEN_CHANGES = ("You heat", "You cool", "You clean", "You turn on")
"""Prefixes of the answers to commands whose effect later observations do not show."""

_CLOSED = re.compile(r"\s*</tool_call>")
NO_CALL = "no tool call"
"""The key "tool_call" before the first call of an episode."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A state, as a key reads it.

    Attributes:
        observation: what the environment returned.
        action: what the agent did before; None in the first state.
        info: what the environment returned in addition to the observation; empty for stored steps. On verl it has only
            `task`, `admissible_commands`, `won`, `score` and `tools`.
    """

    observation: str
    action: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


StateKey = Callable[[Visit], str]


def observation(visit: Visit) -> str:
    """The observation's text."""
    return visit.observation


def observation_and_commands(visit: Visit) -> str:
    """The observation followed by what can be done, where one text, such as "Nothing happens.", has many states."""
    return f"{visit.observation}{COMMANDS_FOLLOW}{', '.join(visit.info.get('admissible_commands') or ())}"


class PublishedG2poKey:
    """State keys of household games as in the published G2PO code; one instance per episode.

    The key of the first state is its observation; later keys are observations with the admissible commands.
    A failed command keeps the key (but after a failed first command, the key is the observation with its commands).
    After a change that later observations do not show, the text of that change precedes the next observation.

    Source: github.com/Nala-YN/G2PO, agent_system/environments/env_manager.py. Its WebShop uses only the observation.

    Example: after "You heat the mug 1 ..." at the microwave and a walk, the key is the heating's and the walk's text.
    """

    def __init__(self) -> None:
        """Start without observations."""
        self._last: tuple[str, ...] = ()

    def __call__(self, visit: Visit) -> str:
        """Return the key of the next state."""
        text = observation_and_commands(visit)
        if not self._last:
            self._last = (text,)
            return visit.observation
        if not visit.observation.startswith(FAILED):
            self._last = (*self._last[-1:], text)
        return " ".join(self._last) if self._last[0].startswith(UNSEEN_CHANGES) else self._last[-1]


def simulator(visit: Visit) -> str:
    """The exact state of an environment that gives it, `info["state_key"]`."""
    return exact_state(visit.info)


class LastCall:
    """Name and arguments of an episode's last tool call, also after later messages; `NO_CALL` before the first call."""

    def __init__(self) -> None:
        """Start without a call."""
        self._last = NO_CALL

    def __call__(self, visit: Visit) -> str:
        """Return the key of the next state."""
        self._last = called(visit.action) or self._last
        return self._last


def called(action: str | None) -> str | None:
    """The tool calls of an action as canonical JSON, `[{"arguments": …, "name": …}]`; None if it has none.

    It reads the actions of environments with tools, responses with `<tool_call>`, and turns of conversations
    (`hgpo.storage.conversations`), whose last line is such a list or one call.
    """
    text = (action or "").strip()
    answer = without_thoughts(escape_in_calls(text, THOUGHT_TAG))
    closed = (value for _, end, value in json_of_calls(answer) if _CLOSED.match(answer, end))
    calls = (
        _calls_in(_parsed(text))
        or [call for value in closed for call in _calls_in(value)]
        or _calls_in(_parsed(text.rpartition("\n")[2]))
    )
    try:
        return canonical_json(calls) if calls else None
    except RecursionError:  # nested too deep to compare
        return None


def _parsed(text: str) -> Any:
    """The value of a text as JSON; None for other texts."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _calls_in(value: Any) -> list[dict[str, Any]]:
    """The tool call or the list of calls that a JSON value is; none in other values."""
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, dict) and {*call} in ({"name", "arguments"}, {"tool", "arguments"}) for call in calls):
        return []
    return [{"name": call.get("name", call.get("tool")), "arguments": call["arguments"]} for call in calls]


STATE_KEYS: Registry[Callable[..., Any]] = Registry(
    "state key",
    "hgpo.state_keys",
    {
        "observation": f"{__name__}:observation",
        "observation_and_commands": f"{__name__}:observation_and_commands",
        "published_g2po": f"{__name__}:PublishedG2poKey",
        "simulator": f"{__name__}:simulator",
        JSON: f"{__name__}:observation",
        TOOL_CALL: f"{__name__}:LastCall",
    },
    check=lambda part: None if callable(part) else "cannot be called",
)
"""State keys by name; see `hgpo.plugins`."""

INFO_OF = {
    "observation_and_commands": "admissible_commands",
    "published_g2po": "admissible_commands",
    "simulator": "state_key",
    TOOL_CALL: "tools",
}
"""Key -> what an environment's `info` must have for it at the start of an episode."""


_part = cache(STATE_KEYS.get)  # every episode asks


def make_key(state: str) -> StateKey:
    """Create the state key of one episode by its name, a value of `rollout.state`.

    Raises:
        ValueError: Unknown name.
        EnvContractError: (a ValueError) A class that cannot be instantiated, or whose instances cannot be called. The
            returned function raises it if the key fails or is not text.
    """
    part, what = _part(state), f"the state key {state!r}"
    try:
        key = part() if isinstance(part, type) else part
    except BREAKS as error:
        raise wrapped_error(what, f"{state.rpartition(':')[2]}()", error, below=__file__) from error
    if not callable(key):
        raise EnvContractError(f"{what}: its instances cannot be called; the class needs __call__(self, visit)")

    def checked(visit: Visit) -> str:
        try:
            found = key(visit)
        except BREAKS as error:
            raise wrapped_error(what, "its call", error, below=__file__) from error
        if not isinstance(found, str):
            raise EnvContractError(f"{what} returned {safe_repr(found)}; it has to return text")
        return found

    return checked
