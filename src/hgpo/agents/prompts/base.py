"""The template interface and its registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from hgpo.agents.actions import ParsedAction
from hgpo.plugins import Registry


@dataclass(frozen=True, slots=True)
class Situation:
    """All that an agent may be told at one step.

    Example: `Situation(task="put a mug in desk.", observation="You arrive at desk 1. …", step=3,
    history=(("… drawer 1 is closed.", "open drawer 1"),), admissible=("go to desk 1", "look"))`.
    """

    task: str
    observation: str
    step: int  # 0 at the first observation
    history: tuple[tuple[str, str], ...] = ()  # (observation, action), oldest first
    admissible: tuple[str, ...] = ()

    def forget_oldest(self) -> Situation:
        """The same situation with the oldest remembered pair gone."""
        return Situation(self.task, self.observation, self.step, self.history[1:], self.admissible)


class Template(Protocol):
    """One way to talk to a model."""

    def render(self, situation: Situation) -> str:
        """The text of the user message."""
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
