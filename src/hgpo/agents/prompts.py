"""Prompt templates: a template makes prompts and reads actions from responses, which are untrusted text.

`CompactTemplate` is the shortest complete prompt, for tiny models. `ReasoningTemplate` has the structure of the
published prompts, for instruction-tuned models. Each has a subclass for the household tasks of ALFWorld, and
`ReasoningTemplate` one for WebShop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hgpo.messages import Conversation, thought_spans, without_thoughts
from hgpo.plugins import Registry

MAX_ACTION_CHARACTERS = 512
_CJK = re.compile("[\u4e00-\u9fff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Everything that a prompt is made from at one step.

    Attributes:
        task: the sentence that states the goal.
        observation: the newest observation.
        step: index of the step, from 0.
        history: the remembered (observation, action) pairs, oldest first.
        admissible: the admissible actions, if the environment lists them.
        responses: the model's whole responses at the remembered steps.
        kind: the task's type.
        lessons: the agent's conclusions from earlier trials of the same task, oldest first.
        tools: the environment's tools: name, description and JSON schema of the parameters (`hgpo.tool_calls`).
    """

    task: str
    observation: str
    step: int
    history: tuple[tuple[str, str], ...] = ()
    admissible: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    kind: str = ""
    lessons: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()

    def forget_oldest(self, count: int = 1) -> AgentContext:
        """The context without the `count` oldest remembered steps."""
        return replace(self, history=self.history[count:], responses=self.responses[count:])


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action read from a response.

    Attributes:
        action: the action for the environment.
        valid: whether the response follows the format.
        fault: the reason why it does not, in a few words; "" exactly if `valid` is true.
    """

    action: str
    valid: bool
    fault: str = ""


class Template(Protocol):
    """Makes prompts and reads responses."""

    def render(self, context: AgentContext) -> Conversation:
        """The text of the user message, or the turns of a conversation that ends with one."""
        ...

    def parse(self, response: str) -> ParsedAction:
        """The action in a response."""
        ...

    def respond(self, action: str) -> str:
        """A response that carries `action`; the inverse of `parse`, for demonstrations."""
        ...


def _why_not_template(part: Any) -> str | None:
    missing = [name for name in ("render", "parse", "respond") if not callable(getattr(part, name, None))]
    if isinstance(part, type):
        return "is a class; name an instance of it"
    return f"is not a prompt template: it has no {', '.join(missing)}" if missing else None


TEMPLATES: Registry[Template] = Registry(
    "prompt template",
    "hgpo.templates",
    {
        "compact": "hgpo.agents.prompts:COMPACT",
        "reasoning": "hgpo.agents.prompts:REASONING",
        "household-compact": "hgpo.agents.prompts:HOUSEHOLD_COMPACT",
        "household-reasoning": "hgpo.agents.prompts:HOUSEHOLD_REASONING",
        "shop-reasoning": "hgpo.agents.prompts:SHOP_REASONING",
    },
    check=_why_not_template,
)
"""Prompt templates by name; see `hgpo.plugins`."""


def parse_tagged(response: str, *, fallback_characters: int) -> ParsedAction:
    """The published rules: the action is the lower-cased text of the first `<action>…</action>`.

    Invalid when the tag pair is missing, when the `<think>…</think>` pair is missing, or when the response holds
    a CJK character. Without a complete pair the last `fallback_characters` of the response are the action (30 for
    ALFWorld, 20 for WebShop in the published recipe).

    Unlike in the published code, an `<action>` inside a thought is ignored, since a thinking model considers several
    actions, and an action over `MAX_ACTION_CHARACTERS` is cut and invalid.
    """
    lowered = response.lower()
    answer = _from_its_action(lowered)
    text, closed, _ = answer.partition("<action>")[2].partition("</action>")  # a pattern would search from every tag
    thought = "<think>" in lowered and "</think>" in lowered
    if not closed:
        fault = "no <think></think>" if answer != lowered and not thought else "no <action></action>"
        return ParsedAction(clean_action(answer[-fallback_characters:]), False, fault)
    action = clean_action(text)
    if not thought:
        return ParsedAction(action, False, "no <think></think>")
    if _CJK.search(response):
        return ParsedAction(action, False, "CJK characters")
    if len(text) > MAX_ACTION_CHARACTERS:
        return ParsedAction(action, False, "too long")
    return ParsedAction(action, True)


def _from_its_action(lowered: str) -> str:
    """The response from its first `<action>` outside thoughts or, without one, the response without its thoughts.

    If the first `<action>` is in no thought, or there is none at all, the whole response.
    """
    place = first = lowered.find("<action>")
    for start, end in thought_spans(lowered) if first >= 0 else ():
        if start <= place < end:
            place = lowered.find("<action>", end)
    if place == first:
        return lowered
    return lowered[place:] if place >= 0 else without_thoughts(lowered)


def parse_bare(response: str) -> ParsedAction:
    """For models that respond with the command alone: the whole response, lower-cased, is the action.

    Thoughts between tags are left out.
    """
    response = without_thoughts(response)
    if len(response) > MAX_ACTION_CHARACTERS:
        return ParsedAction(clean_action(response[:MAX_ACTION_CHARACTERS].lower()), False, "too long")
    action = clean_action(response.lower())
    if not action:
        return ParsedAction("", False, "empty")
    if _CONTROL.search(response.strip()):
        return ParsedAction(action, False, "control characters")
    return ParsedAction(action, True)


def clean_action(text: str) -> str:
    """One line without control characters, with single spaces and of bounded length."""
    return " ".join(_CONTROL.sub(" ", text[:MAX_ACTION_CHARACTERS]).split())


class CompactTemplate:
    """`task : … . past : observation > action . … now : observation`; the answer is the bare action."""

    def render(self, context: AgentContext) -> str:
        """One line with the whole task, history and observation; runs of white space become one space."""
        past = [f"past : {self.shorten(seen)} > {done}" for seen, done in context.history]
        now = f"now : {self.shorten(context.observation)}"
        return " ".join([*self.head(context), *past, now, *self.tail(context)])

    def head(self, context: AgentContext) -> list[str]:
        """The parts before the history."""
        return [f"task : {' '.join(context.task.split())}"]

    def tail(self, context: AgentContext) -> list[str]:
        """The parts after the observation."""
        return []

    def shorten(self, observation: str) -> str:
        """The observation as it appears in the prompt; here runs of white space become one space."""
        return " ".join(observation.split())

    def parse(self, response: str) -> ParsedAction:
        """The whole response is the action."""
        return parse_bare(response)

    def respond(self, action: str) -> str:
        """The action itself."""
        return action


class ReasoningTemplate:
    """Role, task, memory, observation, actions and format: reasoning in `<think>`, one action in `<action>`."""

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
        """The number of steps and the remembered pairs, each with its step number from 1."""
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
        """The admissible actions that the prompt lists."""
        return context.admissible

    def parse(self, response: str) -> ParsedAction:
        """See `parse_tagged`."""
        return parse_tagged(response, fallback_characters=self.fallback_characters)

    def respond(self, action: str) -> str:
        """A valid response with empty reasoning."""
        return f"<think></think><action>{action}</action>"


_GO_TO = "go to "
_RARELY_USEFUL = (_GO_TO, "examine ", "look", "inventory", "help")
_ARRIVAL = re.compile(r"^you arrive at [^.]*\. ")
_FILLER = re.compile(r"\b(?:you|see|the|an?|and|in it)\b|[,.]")


class HouseholdCompactTemplate(CompactTemplate):
    """Adds a short list of the admissible commands and drops the words that every observation repeats.

    `go to` commands are listed as place names; `examine`, `look`, `inventory` and `help`, which are rarely useful, are
    left out. `You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pen 1.` becomes `on shelf 1 mug 2 pen 1`,
    and the first observation, which `places` repeats, becomes `start`.
    """

    def head(self, context: AgentContext) -> list[str]:
        """Task, then the places, in the engine's order."""
        places = [action.removeprefix(_GO_TO) for action in context.admissible if action.startswith(_GO_TO)]
        return [*super().head(context), *([f"places : {' '.join(places)}"] if places else [])]

    def tail(self, context: AgentContext) -> list[str]:
        """The commands that change something at the agent's location."""
        useful = [action for action in context.admissible if not action.startswith(_RARELY_USEFUL)]
        return [f"can : {' , '.join(useful)}"] if useful else []

    def shorten(self, observation: str) -> str:
        """Lower case, without the arrival sentence and filler words."""
        if "Welcome to TextWorld" in observation:
            return "start"
        if "Available commands:" in observation:
            return "help"
        return " ".join(_FILLER.sub(" ", _ARRIVAL.sub("", observation.lower())).split())


class HouseholdReasoningTemplate(ReasoningTemplate):
    """The published ALFWorld prompt: no `help`; without a tag, the last 30 characters of a response are the action."""

    role = "You are a skilled agent in the ALFRED household environment."
    fallback_characters = 30

    def offered(self, context: AgentContext) -> tuple[str, ...]:
        """The admissible commands without `help`."""
        return tuple(action for action in context.admissible if action != "help")


class ShopReasoningTemplate(ReasoningTemplate):
    """The published WebShop prompt: on the search page, the only one without clicks, it shows the form of a search."""

    role = "You are a skilled agent in an online shop."

    def offered(self, context: AgentContext) -> tuple[str, ...]:
        """The possible clicks, or the form of a search."""
        return context.admissible or ("search[<your query>]",)


COMPACT = CompactTemplate()
REASONING = ReasoningTemplate()
HOUSEHOLD_COMPACT = HouseholdCompactTemplate()
HOUSEHOLD_REASONING = HouseholdReasoningTemplate()
SHOP_REASONING = ShopReasoningTemplate()
