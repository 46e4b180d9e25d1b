"""The template interface and its registry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from hgpo.agents.actions import ParsedAction
from hgpo.conversation import Conversation
from hgpo.plugins import Registry


@dataclass(frozen=True, slots=True)
class Situation:
    """All that an agent may be told at one step.

    Attributes:
        task: the sentence that states the goal.
        observation: what the environment said last.
        step: 0 at the first observation.
        history: the remembered (observation, action) pairs, oldest first.
        admissible: what can be done now, where the environment lists it.
        responses: what the model had answered at the remembered steps, in full.
        kind: the task's type.
        lessons: what the agent has made of earlier trials of the same game, oldest first.
    """

    task: str
    observation: str
    step: int
    history: tuple[tuple[str, str], ...] = ()
    admissible: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    kind: str = ""
    lessons: tuple[str, ...] = ()

    def forget_oldest(self, count: int = 1) -> Situation:
        """The same situation with the `count` oldest remembered steps gone."""
        return replace(self, history=self.history[count:], responses=self.responses[count:])


class Template(Protocol):
    """One way to talk to a model."""

    def render(self, situation: Situation) -> Conversation:
        """The text of the user message, or the turns of a conversation that ends with one."""
        ...

    def parse(self, response: str) -> ParsedAction:
        """The action in a response."""
        ...

    def respond(self, action: str) -> str:
        """A response that carries `action`; the inverse of `parse`, for demonstrations."""
        ...


def _no_template(part: Any) -> str | None:
    missing = [name for name in ("render", "parse", "respond") if not callable(getattr(part, name, None))]
    if isinstance(part, type):
        return "is a class; name an instance of it"
    return f"is no prompt template: it has no {', '.join(missing)}" if missing else None


TEMPLATES: Registry[Template] = Registry(
    "prompt template",
    "hgpo.templates",
    {
        "compact": "hgpo.agents.prompts.compact:COMPACT",
        "reasoning": "hgpo.agents.prompts.reasoning:REASONING",
        "household-compact": "hgpo.agents.prompts.household:HOUSEHOLD_COMPACT",
        "household-reasoning": "hgpo.agents.prompts.household:HOUSEHOLD_REASONING",
    },
    check=_no_template,
)
"""Prompt templates by name; see `hgpo.plugins`."""


def register_template(name: str, template: Template) -> None:
    """Make a template of your own available under `name`. A taken name is a `ValueError`."""
    TEMPLATES.register(name, template)


def template_names() -> list[str]:
    """All names that `get_template` knows without a path."""
    return TEMPLATES.names()


def get_template(name: str) -> Template:
    """The template called `name`; `ValueError` says which there are."""
    return TEMPLATES.get(name)
