"""ReAct: a thought before every action, and the whole history in sight.

Source: Yao et al. 2023, "ReAct: Synergizing Reasoning and Acting in Language Models", arXiv 2210.03629, section 3 and
appendix C. As there, the prompt begins with worked examples of the task's type; they are this project's own
(`hgpo.agents.worked_examples`). History is given as real turns: observations are the
user's, thoughts and actions are the model's.
"""

from __future__ import annotations

import re

from hgpo.agents.base import Agent, AgentSpec
from hgpo.agents.parsing import ParsedAction, clean_action
from hgpo.agents.prompts import AgentContext
from hgpo.agents.worked_examples import WorkedExample, examples_for, load_examples
from hgpo.messages import Conversation, Message

# No white space can be shared out in two ways, or else the time would grow with the square of a run of it.
_ACTION = re.compile(r"^(?:[^\S\n]|[>*#-])*action(?:\s*\d+)?\s*(?:\*+\s*)?:\s*\**(.*)$", re.IGNORECASE | re.MULTILINE)
_QUOTES = "`\"'* "
_EXAMPLES = {"alfworld": "household", "webshop": "shop"}
MAX_REMEMBERED_CHARACTERS = 2_000
"""Of one response; what a model runs on for is not told to it again."""


class ReactTemplate:
    """Thought, action, observation, as a conversation.

    Attributes:
        examples: all there are; each prompt shows those of its task's form and type first.
        shown: how many a prompt shows.
        list_commands: whether the admissible commands are listed after the newest observation.
    """

    role = "You act in an interactive text environment to complete a task."
    form = (
        "At every turn reply with exactly two lines: `Thought:` with your reasoning in one or two sentences, then "
        "`Action:` with one command and nothing else. Then wait for the observation."
    )

    def __init__(self, examples: tuple[WorkedExample, ...], shown: int, list_commands: bool) -> None:
        self.examples, self.shown, self.list_commands = examples, shown, list_commands

    def render(self, context: AgentContext) -> Conversation:
        """The conversation so far, up to the newest observation."""
        observations = [*(seen for seen, _ in context.history), context.observation]
        turns = [Message("user", f"{self.head(context)}\n\n{observations[0].strip()}")]
        for (_, action), response, seen in zip(context.history, context.responses, observations[1:], strict=True):
            turns += [
                Message("assistant", remembered(response, action)),
                Message("user", f"Observation: {seen.strip()}"),
            ]
        turns[-1] = Message("user", turns[-1].text + self.tail(context))
        return tuple(turns)

    def head(self, context: AgentContext) -> str:
        """Everything before the first observation that is remembered."""
        examples = examples_for(self.examples, context.kind, self.shown, context.observation)
        shown = [f"Here is how a task was done:\n\n{as_example(example)}" for example in examples]
        left_out = context.step - len(context.history)
        parts = [self.role, self.form, *shown, f"Now it is your turn. Your task: {context.task}"]
        if left_out:
            parts.append(f"(Your first {left_out} turns are left out here.)")
        return "\n\n".join(parts)

    def tail(self, context: AgentContext) -> str:
        """What follows the newest observation."""
        if not (self.list_commands and context.admissible):
            return ""
        return "\n\nPossible commands: " + ", ".join(command for command in context.admissible if command != "help")

    def parse(self, response: str) -> ParsedAction:
        """The command of the first line that begins with `Action:`.

        Without one the last line is sent on, and the response counts as ill-formed.
        """
        found = _ACTION.search(response)
        if found is None:
            lines = [line for line in response.splitlines() if line.strip()]
            return ParsedAction(_command(lines[-1] if lines else ""), False, "no Action:")
        action = _command(found.group(1))
        return ParsedAction(action, bool(action), "" if action else "empty Action:")

    def respond(self, action: str) -> str:
        """A well-formed response without a thought."""
        return f"Action: {action}"


def _command(text: str) -> str:
    return clean_action(text.lower().strip(_QUOTES)).strip(_QUOTES)


def remembered(response: str, action: str) -> str:
    """A response as it is told again: up to its first action. Models run on and make up what they will see next."""
    found = _ACTION.search(response)
    text = response[: found.end()] if found else response
    return text.strip()[:MAX_REMEMBERED_CHARACTERS] or f"Action: {action}"


def as_example(example: WorkedExample) -> str:
    """A worked example as text."""
    lines = [f"Task: {example.task}"]
    for turn in example.turns:
        lines += [f"Observation: {turn.observation}", f"Thought: {turn.thought}", f"Action: {turn.action}"]
    return "\n".join(lines)


def react(spec: AgentSpec, *, examples: int = 2, list_commands: bool = True) -> Agent:
    """Thought and action in turn, over the whole history.

    Args:
        spec: see `AgentSpec`; template and history length play no part.
        examples: worked examples in each prompt; environments that this project has none for get none.
        list_commands: whether the admissible commands are listed after the newest observation.

    Raises:
        ValueError: the number of examples is negative.
    """
    return Agent(ReactTemplate(worked_examples(spec, examples), examples, list_commands), history_length=None)


def worked_examples(spec: AgentSpec, count: int) -> tuple[WorkedExample, ...]:
    """All examples for an environment, none where `count` is 0.

    Raises:
        ValueError: `count` is negative.
    """
    if count < 0:
        raise ValueError(f"agent.options.examples = {count}: there are none below 0")
    name = _EXAMPLES.get(spec.environment)
    return load_examples(name) if name and count else ()
