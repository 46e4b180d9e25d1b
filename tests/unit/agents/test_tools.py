"""The agent `tools`."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from hgpo.agents import Agent, AgentContext, AgentSpec, make_agent
from hgpo.agents.react import MAX_REMEMBERED_CHARACTERS
from hgpo.messages import Message
from hgpo.tool_calls import ToolCall, describe, parse_action

TOOLS: tuple[dict[str, Any], ...] = (
    {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
)
LOOK, GO = ToolCall("look", {}), ToolCall("go", {"place": "Hall"})


def tools() -> Agent:
    return make_agent("tools", AgentSpec("corridor", "compact", history_length=2))


def context(**changes: Any) -> AgentContext:
    told: dict[str, Any] = {
        "task": "find the key",
        "observation": '{"place": "hall"}',
        "step": 2,
        "history": (("A door.", LOOK.action), ('{"error": "dark"}', GO.action)),
        "responses": (f"<think>{GO.tagged}</think>I look.\n{LOOK.tagged}", ""),
        "tools": TOOLS,
    }
    return AgentContext(**{**told, **changes})


def test_the_whole_episode_is_a_conversation_with_calls_and_results() -> None:
    agent = tools()
    assert agent.history_length is None
    first, *rest = agent.template.render(context())
    assert isinstance(first, Message)
    assert first.text.startswith(describe(TOOLS))
    assert first.text.endswith("Your task: find the key\n\nA door.")
    assert json.loads(first.tools) == list(TOOLS)
    assert rest == [
        Message("assistant", f"I look.\n{LOOK.tagged}"),
        Message("user", '<tool_response>\n{"error": "dark"}\n</tool_response>'),
        Message("assistant", GO.tagged),
        Message("user", '<tool_response>\n{"place": "hall"}\n</tool_response>'),
    ]


def test_tools_may_be_mappings_of_any_kind() -> None:
    read_only = (MappingProxyType({**TOOLS[0], "parameters": MappingProxyType(TOOLS[0]["parameters"])}),)
    agent = tools()
    assert agent.template.render(context(tools=read_only)) == agent.template.render(context())


def test_an_invalid_answer_is_repeated_with_the_reason() -> None:
    agent = tools()
    response = f"{LOOK.tagged}{GO.tagged}"
    parsed = agent.template.parse(response)
    assert (parsed.action, parsed.valid, parsed.fault) == ("", False, "more than one tool call")
    _, answer, told = agent.template.render(
        context(step=1, history=(("A door.", ""),), responses=(response,), observation='{"error": "?"}')
    )
    assert answer == Message("assistant", response)
    assert told == Message("user", 'No valid tool call: more than one tool call.\n{"error": "?"}')


def test_an_answer_without_any_text_has_a_turn() -> None:
    _, answer, _ = tools().template.render(context(step=1, history=(("A door.", ""),), responses=("<think></think>",)))
    assert answer == Message("assistant", "(no answer)")


def test_a_long_answer_keeps_its_call() -> None:
    response = "word " * MAX_REMEMBERED_CHARACTERS + LOOK.tagged
    _, answer, _ = tools().template.render(context(step=1, history=(("A door.", LOOK.action),), responses=(response,)))
    assert isinstance(answer, Message)
    assert answer.text.endswith(LOOK.tagged)
    assert len(answer.text) <= MAX_REMEMBERED_CHARACTERS + len(LOOK.tagged) + 1


def test_arguments_keep_their_case_and_a_call_in_a_thought_is_none() -> None:
    template = tools().template
    assert template.parse(f"<think>{LOOK.tagged}</think>{GO.tagged}").action == GO.action
    assert template.parse(f"<think>{LOOK.tagged}</think>").fault == "no <tool_call>"
    assert template.parse(template.respond(GO.action)).action == GO.action


@pytest.mark.parametrize(
    "text", ["a <think> b", "a </think> b", "<thinking>", "[THINK] and </tool_call>", "<tool_call> <think>"]
)
def test_a_thought_tag_in_an_argument_is_part_of_the_argument(text: str) -> None:
    template, call = tools().template, ToolCall("note", {"texts": [text]})
    for thought in ("", "Look.</think>", "<think>Perhaps <tool_call>?</think>", f"<think>{call.tagged}</think>"):
        parsed = template.parse(f"{thought}I write it down. {call.tagged}")
        assert parsed.valid, parsed.fault
        assert parse_action(parsed.action) == call
    assert not template.parse(f"<think>{call.tagged}").valid


def test_forgotten_turns_are_said() -> None:
    first, *rest = tools().template.render(context().forget_oldest())
    assert isinstance(first, Message)
    assert "(Your first 1 turns are left out here.)" in first.text
    assert len(rest) == 2


def test_an_environment_without_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="the environment lists no tools; use another agent"):
        tools().template.render(context(tools=()))


def test_react_lists_the_tools_in_short() -> None:
    react = make_agent("react", AgentSpec("corridor", "compact", history_length=2))
    first, *_ = react.template.render(context(step=0, history=(), responses=()))
    assert isinstance(first, Message)
    assert "in JSON. The tools and their arguments:\nlook(): Look." in first.text
    assert react.template.parse(f"Thought: so.\nAction: {LOOK.action}").action == LOOK.action
    plain, *_ = react.template.render(context(step=0, history=(), responses=(), tools=()))
    assert isinstance(plain, Message)
    assert "tool" not in plain.text
