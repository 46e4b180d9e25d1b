"""Agents: a prompt template with a memory, for any policy.

    context ─▶ template ─▶ prompt ─▶ policy ─▶ response ─▶ template ─▶ action

An agent is one function that returns an `Agent`, registered in `AGENTS`, in the entry-point group `hgpo.agents` of an
installed package, or named `"package.module:function"` in the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hgpo.agents.prompts import HOUSEHOLD_REASONING, REASONING, TEMPLATES, AgentContext, ParsedAction, Template
from hgpo.agents.text_template import TextTemplate, is_text
from hgpo.messages import Conversation, Message
from hgpo.options import converted_options
from hgpo.plugins import BREAKS, Registry
from hgpo.utils.text import describe_error, safe_repr


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """The settings that an agent is made from.

    Attributes:
        environment: name of the environment, such as "alfworld".
        template: name or text of the prompt template; ignored by agents with their own template.
        history_length: K, the number of remembered steps; ignored by agents that remember all steps.
    """

    environment: str
    template: str
    history_length: int


@dataclass(frozen=True, slots=True)
class Agent:
    """How prompts are made and responses are read.

    Attributes:
        template: makes the prompt and parses the response.
        history_length: number of remembered steps; None: all of the trajectory.
        trials: most attempts at a task; the first success ends them.
        reflect: makes the prompt after a failed trial from the context at its end. The response is the lesson that the
            prompts of later trials include (`AgentContext.lessons`). None: later trials have no lessons.
    """

    template: Template
    history_length: int | None
    trials: int = 1
    reflect: Callable[[AgentContext], Conversation] | None = None


AgentMaker = Callable[..., Agent]
"""`(spec, **options) -> Agent`; its keywords are the keys of `[agent.options]`."""


AGENTS: Registry[AgentMaker] = Registry(
    "agent",
    "hgpo.agents",
    {
        "direct": "hgpo.agents.base:direct",
        "react": "hgpo.agents.react:react",
        "reflexion": "hgpo.agents.react:reflexion",
        "tools": "hgpo.agents.tools:tools",
    },
    check=lambda part: None if callable(part) else "is not a function that makes an agent",
)
"""Agents by name; see `hgpo.plugins`."""


def make_agent(name: str, spec: AgentSpec, options: Mapping[str, Any] | None = None) -> Agent:
    """The agent called `name`. A template from outside this package is checked wherever it is used.

    Raises:
        ValueError: an unknown name, an unknown option or an invalid value, or the function returned no agent.
    """
    maker = AGENTS.get(name)
    agent: object = maker(spec, **converted_options(f"agent {name!r}", maker, options or {}, given=1))
    if not isinstance(agent, Agent):
        raise ValueError(f"agent {name!r} has to return an hgpo.agents.Agent, and returned {safe_repr(agent)}")
    kind = type(agent.template)
    if kind.__module__.partition(".")[0] == "hgpo":
        return agent
    return replace(agent, template=_CheckedTemplate(agent.template, f"the template {kind.__name__} of agent {name!r}"))


@dataclass(frozen=True, slots=True)
class _CheckedTemplate:
    """A template of the user's and its name in messages. Methods raise ValueError for its errors and wrong results."""

    template: Template
    name: str

    def render(self, context: AgentContext) -> Conversation:
        """The prompt."""
        prompt: Any = self._called("render", context)
        if not isinstance(prompt, str) and not (
            isinstance(prompt, tuple) and all(isinstance(turn, Message) for turn in prompt)
        ):
            raise self._wrong("render", "text or a tuple of messages", prompt)
        return prompt

    def parse(self, response: str) -> ParsedAction:
        """The action in a response."""
        parsed = self._called("parse", response)
        if not isinstance(parsed, ParsedAction):
            raise self._wrong("parse", "a ParsedAction", parsed)
        return parsed

    def respond(self, action: str) -> str:
        """A response with the action; checked to be the inverse of `parse` but for case and spaces."""
        response = self._called("respond", action)
        if not isinstance(response, str):
            raise self._wrong("respond", "text", response)
        if (read := self.parse(response).action).casefold().split() != action.casefold().split():
            raise ValueError(
                f"{self.name}: parse(respond({action!r})) has the action {read!r}, but respond has to be the inverse "
                "of parse"
            )
        return response

    def _called(self, method: str, argument: Any) -> Any:
        try:
            return getattr(self.template, method)(argument)
        except BREAKS as error:
            raise ValueError(f"{self.name}: {describe_error(f'{method}()', error, below=__file__)}") from error

    def _wrong(self, method: str, wanted: str, returned: object) -> ValueError:
        return ValueError(f"{self.name}: {method}() has to return {wanted}, and returned {safe_repr(returned)}")


def direct(spec: AgentSpec) -> Agent:
    """The published agent: one prompt a step, with the last K steps.

    Raises:
        ValueError: an unknown template.
    """
    if is_text(spec.template):
        tagged = HOUSEHOLD_REASONING if spec.environment == "alfworld" else REASONING
        return Agent(TextTemplate(spec.template, tagged), spec.history_length)
    return Agent(TEMPLATES.get(spec.template), spec.history_length)
