"""The template interface and its registry."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hgpo.agents.parsing import ParsedAction, parse_bare, parse_tagged
from hgpo.messages import Conversation
from hgpo.plugins import Registry


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Everything that an agent sees at one step.

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

    def forget_oldest(self, count: int = 1) -> AgentContext:
        """The same context with the `count` oldest remembered steps gone."""
        return replace(self, history=self.history[count:], responses=self.responses[count:])


class Template(Protocol):
    """One way to talk to a model."""

    def render(self, context: AgentContext) -> Conversation:
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
        "compact": "hgpo.agents.prompts:COMPACT",
        "reasoning": "hgpo.agents.prompts:REASONING",
        "household-compact": "hgpo.agents.prompts:HOUSEHOLD_COMPACT",
        "household-reasoning": "hgpo.agents.prompts:HOUSEHOLD_REASONING",
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


# The shortest prompt that says everything, for tiny models: task, remembered pairs, current observation.


class CompactTemplate:
    """`task : … . past : observation > action . … now : observation`; the answer is the bare action."""

    def render(self, context: AgentContext) -> str:
        """One line; nothing is cut, only white space is folded."""
        past = [f"past : {self.shorten(seen)} > {done}" for seen, done in context.history]
        now = f"now : {self.shorten(context.observation)}"
        return " ".join([*self.head(context), *past, now, *self.tail(context)])

    def head(self, context: AgentContext) -> list[str]:
        """What stands before the history."""
        return [f"task : {' '.join(context.task.split())}"]

    def tail(self, context: AgentContext) -> list[str]:
        """What stands after the observation."""
        return []

    def shorten(self, observation: str) -> str:
        """Environment-specific shortening; here only white space."""
        return " ".join(observation.split())

    def parse(self, response: str) -> ParsedAction:
        """The whole response is the action."""
        return parse_bare(response)

    def respond(self, action: str) -> str:
        """The action itself."""
        return action


COMPACT = CompactTemplate()


# The published structure, for instruction-tuned models: role, task, memory, observation, actions, answer format.


class ReasoningTemplate:
    """Asks for reasoning in `<think>` and one action in `<action>`; fits any text environment."""

    role = "You act in an interactive text environment and choose one action at a time."
    fallback_characters = 20

    def render(self, context: AgentContext) -> str:
        """The full user message."""
        parts = [self.role]
        if context.task:
            parts.append(f"Your task: {context.task}")
        if context.step:
            parts.append(self.progress(context))
        parts.append(f"This is step {context.step + 1}. You now observe:\n{context.observation.strip()}")
        actions = self.offered(context)
        if actions:
            parts.append("You may choose one of these actions:\n" + "\n".join(f"- {action}" for action in actions))
        parts.append(
            "First reason step by step about the situation inside <think> </think>. "
            "Then give exactly one action inside <action> </action>."
        )
        return "\n\n".join(parts)

    def progress(self, context: AgentContext) -> str:
        """Step count and the remembered pairs, each with its step number."""
        head = f"You have taken {context.step} steps so far."
        if not context.history:
            return head
        first = context.step - len(context.history) + 1
        lines = [
            f"[Step {first + offset}] observation: {seen.strip()}\n[Step {first + offset}] action: {done}"
            for offset, (seen, done) in enumerate(context.history)
        ]
        return f"{head} The last {len(context.history)}:\n" + "\n".join(lines)

    def offered(self, context: AgentContext) -> tuple[str, ...]:
        """Which admissible actions are shown."""
        return context.admissible

    def parse(self, response: str) -> ParsedAction:
        """The published validity rules."""
        return parse_tagged(response, fallback_characters=self.fallback_characters)

    def respond(self, action: str) -> str:
        """A well-formed response without content in its reasoning."""
        return f"<think></think><action>{action}</action>"


REASONING = ReasoningTemplate()


# Templates for the household games (ALFWorld): a compact one for tiny models, the published structure for LLMs.


_GO_TO = "go to "
_HARDLY_EVER_OF_USE = (_GO_TO, "examine ", "look", "inventory", "help")
_ARRIVAL = re.compile(r"^you arrive at [^.]*\. ")
_FILLER = re.compile(r"\b(?:you|see|the|an?|and|in it)\b|[,.]")


class HouseholdCompactTemplate(CompactTemplate):
    """Adds what can be done, told briefly, and drops the words that every observation repeats.

    Of the admissible commands, places to go to are listed by name; `examine`, `look`, `inventory` and `help`,
    which are hardly ever of use, are not listed.

    `You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pen 1.` becomes `on shelf 1 mug 2 pen 1`
    and the opening description of the room, which `places` repeats, becomes `start`.
    """

    def head(self, context: AgentContext) -> list[str]:
        """Task, then the places, in the engine's order."""
        places = [action.removeprefix(_GO_TO) for action in context.admissible if action.startswith(_GO_TO)]
        return [*super().head(context), *([f"places : {' '.join(places)}"] if places else [])]

    def tail(self, context: AgentContext) -> list[str]:
        """The commands that change something where the agent stands."""
        useful = [action for action in context.admissible if not action.startswith(_HARDLY_EVER_OF_USE)]
        return [f"can : {' , '.join(useful)}"] if useful else []

    def shorten(self, observation: str) -> str:
        """Lower case, without arrival sentence and filler words."""
        if "Welcome to TextWorld" in observation:
            return "start"
        if "Available commands:" in observation:
            return "help"
        return " ".join(_FILLER.sub(" ", _ARRIVAL.sub("", observation.lower())).split())


class HouseholdReasoningTemplate(ReasoningTemplate):
    """The published ALFWorld prompt: `help` is not offered, and 30 characters are sent on without a tag."""

    role = "You are a skilled agent in the ALFRED household environment."
    fallback_characters = 30

    def offered(self, context: AgentContext) -> tuple[str, ...]:
        """Admissible commands but `help`."""
        return tuple(action for action in context.admissible if action != "help")


HOUSEHOLD_COMPACT = HouseholdCompactTemplate()
HOUSEHOLD_REASONING = HouseholdReasoningTemplate()


# Prompt templates: they make a prompt of a context and parse the response.


__all__ = ["TEMPLATES", "AgentContext", "Template", "get_template", "register_template", "template_names"]
