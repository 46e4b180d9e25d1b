"""ReAct: a thought before every action, and prompts with the whole history. Reflexion: ReAct with several trials.

Source: Yao et al. 2023, "ReAct: Synergizing Reasoning and Acting in Language Models", arXiv 2210.03629, section 3 and
appendix C. As there, the prompt begins with worked examples of the task's type; they are this project's own
(`hgpo.agents.worked_examples`). The history is a conversation: observations are the user's turns, thoughts and actions
are the model's.

Reflexion tries a failed task again, with a lesson that the agent wrote after the failure. Source: Shinn et al. 2023,
"Reflexion: Language Agents with Verbal Reinforcement Learning", arXiv 2303.11366, section 3 and algorithm 1: actor
(here ReAct), evaluator (`won` of the environment), self-reflection, and a memory of the last few lessons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from hgpo.agents.base import Agent, AgentSpec
from hgpo.agents.prompts import MAX_ACTION_CHARACTERS, AgentContext, ParsedAction, clean_action
from hgpo.agents.worked_examples import WorkedExample, examples_for, load_examples
from hgpo.messages import THOUGHT_TAG, Conversation, Message, without_thoughts
from hgpo.tool_calls import ToolCallError, escape_in_calls, json_of_calls, parse_action, signatures

# Each run of white space matches in one way only; otherwise the time would grow with the square of its length.
# The line after an empty `Action:`, or after the first line of a code block, is the command, unless it is the next part
# of an answer.
_LABEL = r"^(?:[^\S\n]|[>*#-])*action(?:\s*\d+)?\s*(?:\*+\s*)?:\s*\**(?:`{3,}\w*[^\S\n]*\n\s*)?"
_ACTION = re.compile(
    _LABEL + r"(?!(?:thought|action|observation)[\s\d*]*:)(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_CALL = re.compile(_LABEL + r"(?=\{)", re.IGNORECASE | re.MULTILINE)
_QUOTES = frozenset("`\"'*")
_EXAMPLES = {"alfworld": "household", "webshop": "shop"}
_CALLS = 'A command is one tool call, {"tool": NAME, "arguments": {…}} in JSON. The tools and their arguments:'
MAX_REMEMBERED_CHARACTERS = 2_000
"""Maximum length of a response that later prompts repeat; a longer one is truncated and keeps its action."""
MOST_LESSONS = 3
"""Most lessons in a prompt, as in section 4 of the paper."""
_QUESTION = (
    "The attempt is over and the task was not completed. In a few sentences, say what went wrong and what you will do "
    "differently in the next attempt at the very same task: which places to go to first, which commands to use, what "
    "not to repeat. Write the plan only, no `Action:`."
)


class ReactTemplate:
    """Thought, action, observation, as a conversation.

    Attributes:
        examples: all worked examples; prompts take those of the task's form and type first.
        shown: number of examples in a prompt.
        list_commands: whether the admissible commands are listed after the newest observation.
    """

    role = "You act in an interactive text environment to complete a task."
    form = (
        "At every turn reply with exactly two lines: `Thought:` with your reasoning in one or two sentences, then "
        "`Action:` with one command and nothing else. Then wait for the observation."
    )

    def __init__(self, examples: tuple[WorkedExample, ...], shown: int, list_commands: bool) -> None:
        self.examples, self.shown, self.list_commands = examples, shown, list_commands

    def render(self, context: AgentContext) -> tuple[Message, ...]:
        """The conversation up to the newest observation."""
        *turns, last = conversation(context, self.head(context), self._turn)
        return (*turns, Message("user", last.text + self.tail(context)))

    def _turn(self, action: str, response: str, seen: str) -> tuple[Message, Message]:
        return Message("assistant", remembered(response, action)), Message("user", f"Observation: {seen}")

    def head(self, context: AgentContext) -> str:
        """The text before the first remembered observation; lessons of earlier trials come last."""
        examples = examples_for(self.examples, context.kind, self.shown, context.observation)
        shown = [f"Here is how a task was done:\n\n{as_example(example)}" for example in examples]
        left_out = context.step - len(context.history)
        tools = [f"{_CALLS}\n{signatures(context.tools)}"] if context.tools else []
        parts = [self.role, self.form, *tools, *shown, f"Now it is your turn. Your task: {context.task}"]
        if left_out:
            parts.append(f"(Your first {left_out} turns are left out here.)")
        if context.lessons:
            noted = "\n".join(f"- {lesson}" for lesson in context.lessons[-MOST_LESSONS:])
            parts.append(f"You have tried this very task before and failed. What you noted for this attempt:\n{noted}")
        return "\n\n".join(parts)

    def tail(self, context: AgentContext) -> str:
        """The text after the newest observation."""
        if not (self.list_commands and context.admissible):
            return ""
        return "\n\nPossible commands: " + ", ".join(command for command in context.admissible if command != "help")

    def parse(self, response: str) -> ParsedAction:
        """The command of the first line that begins with `Action:`, outside a thinking model's thoughts.

        Without one the last line is the action, and the response is invalid.
        """
        answer = _answer_of(response)
        found = _first_action(answer)
        if found is None:
            lines = [line for line in answer.splitlines() if line.strip()]
            return replace(_command(lines[-1] if lines else ""), valid=False, fault="no Action:")
        return _command(answer[slice(*found)])

    def respond(self, action: str) -> str:
        """A valid response without a thought."""
        return f"Action: {action}"


def ask_for_lesson(context: AgentContext) -> Conversation:
    """The conversation of a failed trial; its last turn ends with the question for a lesson."""
    *turns, last = ReactTemplate((), 0, list_commands=False).render(replace(context, lessons=()))
    return (*turns, Message("user", f"{last.text}\n\n{_QUESTION}"))


def conversation(
    context: AgentContext, head: str, turn: Callable[[str, str, str], Sequence[Message]], tools: str = ""
) -> list[Message]:
    """Turns: `head` and the first remembered observation, then `turn(action, response, next observation)` per step."""
    observations = [seen.strip() for seen in (*(seen for seen, _ in context.history), context.observation)]
    turns = [Message("user", f"{head}\n\n{observations[0]}", tools)]
    for (_, action), response, seen in zip(context.history, context.responses, observations[1:], strict=True):
        turns += turn(action, response, seen)
    return turns


def _answer_of(response: str) -> str:
    """The answer without thoughts; a thought's tag in an argument of a tool call begins no thought."""
    return without_thoughts(escape_in_calls(response, THOUGHT_TAG, _CALL))


def _first_action(answer: str) -> tuple[int, int] | None:
    """Begin and end of the first action: the rest of a line, or a JSON object that goes on after it."""
    found = _ACTION.search(answer)
    if found is None:
        return None
    begin, end = found.span(1)
    first_call = next(json_of_calls(answer, _CALL), None) if answer.startswith("{", begin) else None
    return (begin, max(end, first_call[1])) if first_call and first_call[0] == begin else (begin, end)


def _command(text: str) -> ParsedAction:
    """The action for the environment; only tool calls keep their case and spaces."""
    text = _without_quotes(text)
    try:
        return ParsedAction(parse_action(text).action, True)
    except ToolCallError:
        action = clean_action(text.lower())
    if len(text) > MAX_ACTION_CHARACTERS:
        fault = "too long"
    elif text.startswith("{"):
        fault = "not a tool call"
    else:
        fault = "" if action else "empty Action:"
    return ParsedAction(action, not fault, fault)


def _without_quotes(text: str) -> str:
    """Without quotes, backticks and asterisks at the ends, unless the text has the same character inside."""
    text = text.strip()
    while outer := [mark for mark in _QUOTES & {text[:1], text[-1:]} if mark not in text.strip(mark)]:
        text = text.strip(f"{outer[0]} ")
    return text


def remembered(response: str, action: str) -> str:
    """A response as later prompts repeat it, cut after its first action: models invent observations after that.

    Thoughts are removed, as chat templates do. A text over `MAX_REMEMBERED_CHARACTERS` is truncated and ends with its
    action. An empty text becomes `Action: {action}`.
    """
    answer = _answer_of(response)
    found = _first_action(answer)
    text = (answer[: found[1]] if found else answer).strip()
    command = f"Action: {action}"
    if len(text) > MAX_REMEMBERED_CHARACTERS:
        return f"{text[: max(0, MAX_REMEMBERED_CHARACTERS - len(command) - 1)]}\n{command}".lstrip()
    return text or command


def as_example(example: WorkedExample) -> str:
    """A worked example as text."""
    lines = [f"Task: {example.task}"]
    for turn in example.turns:
        lines += [f"Observation: {turn.observation}", f"Thought: {turn.thought}", f"Action: {turn.action}"]
    return "\n".join(lines)


def react(spec: AgentSpec, *, examples: int = 2, list_commands: bool = True) -> Agent:
    """A thought and an action a step, with the whole history in the prompt.

    Args:
        spec: see `AgentSpec`; template and history length are ignored.
        examples: worked examples in each prompt; there are some for ALFWorld and WebShop.
        list_commands: whether the admissible commands are listed after the newest observation.

    Raises:
        ValueError: the number of examples is negative.
    """
    if examples < 0:
        raise ValueError(f"agent.options.examples = {examples}; give 0 or more")
    name = _EXAMPLES.get(spec.environment)
    known = load_examples(name) if name and examples else ()
    return Agent(ReactTemplate(known, examples, list_commands), history_length=None)


def reflexion(spec: AgentSpec, *, trials: int = 3, examples: int = 2, list_commands: bool = True) -> Agent:
    """ReAct, with up to `trials` attempts at each task.

    Args:
        trials: most attempts at a task; the first success ends them.
        spec, examples, list_commands: see `react`.

    Raises:
        ValueError: `trials` is below 1, or see `react`.
    """
    if trials < 1:
        raise ValueError(f"agent.options.trials = {trials}; give 1 or more")
    agent = react(spec, examples=examples, list_commands=list_commands)
    return replace(agent, trials=trials, reflect=ask_for_lesson)
