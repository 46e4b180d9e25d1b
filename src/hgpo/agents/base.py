"""An agent: how a policy is asked for actions, whatever policy that is.

    situation ─▶ template ─▶ prompt ─▶ policy ─▶ response ─▶ template ─▶ action

It is one file with one function that makes it, and one entry: here, in the entry-point group `hgpo.agents` of any
installed package, or named `"package.module:function"` in the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.agents.prompts import Situation, Template
from hgpo.conversation import Conversation
from hgpo.plugins import Registry, check_options


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent is made for.

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
        template: how a situation is told and an answer read.
        history_length: remembered steps; None: all of the trajectory.
        trials: how often a game is tried until it is won.
        reflect: the prompt after a trial that was lost, made of the situation at its end; its answer is the lesson that
            later trials are told (`Situation.lessons`). None where there is one trial.
    """

    template: Template
    history_length: int | None
    trials: int = 1
    reflect: Callable[[Situation], Conversation] | None = None


AgentMaker = Callable[..., Agent]
"""`(surroundings, **options) -> Agent`; its keywords are what `[agent.options]` may hold."""


def _no_agent(part: Any) -> str | None:
    return None if callable(part) else "is no function that makes an agent"


AGENTS: Registry[AgentMaker] = Registry(
    "agent",
    "hgpo.agents",
    {
        "direct": "hgpo.agents.direct:direct",
        "react": "hgpo.agents.react:react",
        "reflexion": "hgpo.agents.reflexion:reflexion",
    },
    check=_no_agent,
)
"""Agents by name; see `hgpo.plugins`."""


def make_agent(name: str, surroundings: Surroundings, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent called `name`.

    Raises:
        ValueError: there is none of that name, it does not take an option, or the option's value.
    """
    options = dict(options or {})
    maker = AGENTS.get(name)
    check_options(f"agent {name!r}", maker, options)
    return maker(surroundings, **options)
