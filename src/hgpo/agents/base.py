"""What an agent remembers: the last K steps of its own trajectory, or all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.agents.prompts import AgentContext, Template, get_template
from hgpo.messages import Conversation
from hgpo.plugins import Registry, check_options


class Memory:
    """Keeps the `history_length` most recent steps, oldest first; None keeps all.

    Example: with `history_length=2` after three steps, `recent()` is `[(o1, a1), (o2, a2)]`.
    """

    def __init__(self, history_length: int | None) -> None:
        if history_length is not None and history_length < 0:
            raise ValueError(f"history_length must be 0 or more, not {history_length}")
        self._pairs: deque[tuple[str, str]] = deque(maxlen=history_length)
        self._responses: deque[str] = deque(maxlen=history_length)

    def remember(self, observation: str, action: str, response: str) -> None:
        """Add the newest step; the oldest falls out when there is no room.

        Args:
            observation: what the environment had said.
            action: what was done.
            response: all that the model had answered; empty where nobody was asked.
        """
        self._pairs.append((observation, action))
        self._responses.append(response)

    def recent(self) -> tuple[tuple[str, str], ...]:
        """Observation and action of the remembered steps, oldest first."""
        return tuple(self._pairs)

    def responses(self) -> tuple[str, ...]:
        """The responses of the remembered steps, oldest first."""
        return tuple(self._responses)


# An agent: how a policy is asked for actions, whatever policy that is.
#
#     context ─▶ template ─▶ prompt ─▶ policy ─▶ response ─▶ template ─▶ action
#
# It is one file with one function that makes it, and one entry: here, in the entry-point group `hgpo.agents` of any
# installed package, or named `"package.module:function"` in the recipe.


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Environment, template and memory that an agent is made for.

    Attributes:
        environment: name of the environment, such as "alfworld".
        template: name of the prompt template, for agents that take any.
        history_length: K, remembered steps, for agents that do not remember everything.
    """

    environment: str
    template: str
    history_length: int


@dataclass(frozen=True, slots=True)
class Agent:
    """How a policy is asked.

    Attributes:
        template: makes the prompt and parses the response.
        history_length: remembered steps; None: all of the trajectory.
        trials: how often a game is tried until it is won.
        reflect: the prompt after a trial that was lost, made of the situation at its end; its answer is the lesson that
            later trials are told (`AgentContext.lessons`). None where there is one trial.
    """

    template: Template
    history_length: int | None
    trials: int = 1
    reflect: Callable[[AgentContext], Conversation] | None = None


AgentMaker = Callable[..., Agent]
"""`(spec, **options) -> Agent`; its keywords are what `[agent.options]` may hold."""


def _no_agent(part: Any) -> str | None:
    return None if callable(part) else "is no function that makes an agent"


AGENTS: Registry[AgentMaker] = Registry(
    "agent",
    "hgpo.agents",
    {
        "direct": "hgpo.agents.base:direct",
        "react": "hgpo.agents.react:react",
        "reflexion": "hgpo.agents.reflexion:reflexion",
    },
    check=_no_agent,
)
"""Agents by name; see `hgpo.plugins`."""


def make_agent(name: str, spec: AgentSpec, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent called `name`.

    Raises:
        ValueError: there is none of that name, it does not take an option, or the option's value.
    """
    options = dict(options or {})
    maker = AGENTS.get(name)
    check_options(f"agent {name!r}", maker, options)
    return maker(spec, **options)


# The published per-step prompt: task, the last K steps, what is seen now, one action asked for.


def direct(spec: AgentSpec) -> Agent:
    """Each step is a prompt of its own, with K steps of memory.

    Raises:
        ValueError: there is no template of that name.
    """
    return Agent(get_template(spec.template), spec.history_length)
