"""The agent `tools`: a conversation with tool calls and their results.

The environment lists its tools in `info["tools"]`. The first message describes them as JSON schemas; the model answers
with one `<tool_call>`, the form of Hermes and Qwen models (`hgpo.tool_calls`), and the environment's observation
follows as `<tool_response>`. Servers with native tool calls get both in the protocol's own form
(`hgpo.policies.native_tools`).
"""

from __future__ import annotations

import json

from hgpo.agents.base import Agent, AgentSpec
from hgpo.agents.prompts import AgentContext, ParsedAction
from hgpo.agents.react import MAX_REMEMBERED_CHARACTERS, conversation
from hgpo.messages import THOUGHT_TAG, Conversation, Message, without_thoughts
from hgpo.tool_calls import (
    ToolCall,
    ToolCallError,
    as_response,
    describe,
    escape_in_calls,
    parse_action,
    parse_tagged_call,
)


class ToolsTemplate:
    """Tools, task, calls and results, as a conversation."""

    role = "You complete a task with tools. Call one tool in each answer; you may think first."

    def render(self, context: AgentContext) -> Conversation:
        """The conversation up to the newest observation.

        Raises:
            ValueError: the environment lists no tools.
        """
        if not context.tools:
            raise ValueError("agent.name = 'tools': the environment lists no tools; use another agent, such as react")
        return tuple(
            conversation(context, self.head(context), self._turn, tools=json.dumps(context.tools, default=dict))
        )

    def head(self, context: AgentContext) -> str:
        """The text before the first remembered observation; the tools come first."""
        left_out = context.step - len(context.history)
        parts = [describe(context.tools), self.role, f"Your task: {context.task}"]
        if left_out:
            parts.append(f"(Your first {left_out} turns are left out here.)")
        return "\n\n".join(parts)

    def _turn(self, action: str, response: str, seen: str) -> tuple[Message, Message]:
        """A remembered answer and what followed it. Thoughts are left out, as chat templates do."""
        try:
            before, call = _read(response) if response else ("", parse_action(action))
        except ToolCallError as error:
            answer = without_thoughts(response or action).strip()[:MAX_REMEMBERED_CHARACTERS] or "(no answer)"
            return Message("assistant", answer), Message("user", f"No valid tool call: {error}.\n{seen}")
        answer = f"{before[:MAX_REMEMBERED_CHARACTERS]}\n{call.tagged}".strip()
        return Message("assistant", answer), Message("user", as_response(seen))

    def parse(self, response: str) -> ParsedAction:
        """The one tool call of an answer, outside thoughts; none or several make it invalid, with the reason."""
        try:
            return ParsedAction(_read(response)[1].action, True)
        except ToolCallError as error:
            return ParsedAction("", False, str(error))

    def respond(self, action: str) -> str:
        """A valid answer without a thought.

        Raises:
            ToolCallError: the action is no tool call.
        """
        return parse_action(action).tagged


def _read(response: str) -> tuple[str, ToolCall]:
    """The call outside thoughts, and the text before it; a thought's tag in an argument begins no thought."""
    return parse_tagged_call(without_thoughts(escape_in_calls(response, THOUGHT_TAG)))


def tools(spec: AgentSpec) -> Agent:
    """One tool call a step, with the whole history in the prompt, for environments with `info["tools"]`.

    Args:
        spec: see `AgentSpec`; template and history length are ignored.
    """
    return Agent(ToolsTemplate(), history_length=None)
