"""The template interface and its registry."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol

from hgpo.agents.actions import ParsedAction


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


_BUILT_IN = {
    "compact": "hgpo.agents.prompts.compact:CompactTemplate",
    "reasoning": "hgpo.agents.prompts.reasoning:ReasoningTemplate",
    "household-compact": "hgpo.agents.prompts.household:HouseholdCompactTemplate",
    "household-reasoning": "hgpo.agents.prompts.household:HouseholdReasoningTemplate",
}
_registered: dict[str, Template] = {}


def register_template(name: str, template: Template) -> None:
    """Make a template of your own available under `name`. A taken name is a `ValueError`."""
    if name in _BUILT_IN or name in _registered:
        raise ValueError(f"template {name!r} is already registered; choose another name")
    _registered[name] = template


def template_names() -> list[str]:
    """All names that `get_template` knows."""
    return sorted({*_BUILT_IN, *_registered})


def get_template(name: str) -> Template:
    """The template called `name`; `ValueError` says which there are."""
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        raise ValueError(f"unknown prompt template {name!r}; known: {', '.join(template_names())}")
    module, _, attribute = _BUILT_IN[name].partition(":")
    template: Template = getattr(importlib.import_module(module), attribute)()
    return template
