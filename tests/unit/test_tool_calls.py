"""Tool calls in untrusted text: exactly one is read, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.tool_calls import (
    MAX_CALL_CHARACTERS,
    ToolCall,
    ToolCallError,
    as_response,
    describe,
    of_response,
    parse_action,
    parse_tagged_call,
    signatures,
)

LOOK = ToolCall("look", {"place": "hall"})
TOOL = {
    "name": "look",
    "description": "Look at a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=8), VALUES, max_size=3))
def test_what_is_written_is_read_back(name: str, arguments: dict[str, Any]) -> None:
    call = ToolCall(name, arguments)
    assert parse_action(call.action) == call
    assert parse_tagged_call(f"I look. {call.tagged} ") == ("I look.", call)


@pytest.mark.parametrize(
    "response",
    [
        '<tool_call>{"name":"look","arguments":{"place":"hall"}}</tool_call>',
        '  <tool_call>\n\n{ "arguments" : {"place": "hall"},\n "name": "look" }\n </tool_call>\n\n',
        'I look.<tool_call>\t{"name": "look", "arguments": {"place": "hall"}}</tool_call>',
    ],
)
def test_white_space_and_the_order_of_keys_are_free(response: str) -> None:
    assert parse_tagged_call(response)[1] == LOOK


@pytest.mark.parametrize("length", [MAX_CALL_CHARACTERS, MAX_CALL_CHARACTERS + 1])
def test_both_forms_of_a_call_have_one_limit(length: int) -> None:
    call = ToolCall("look", {"a": "x" * (length - len(ToolCall("look", {"a": ""}).action))})
    read = []
    for parse, text in ((parse_action, call.action), (parse_tagged_call, f"{'I look. ' * 400}{call.tagged}")):
        with contextlib.suppress(ToolCallError):
            read.append(parse(text))
    assert len(read) == (2 if length == MAX_CALL_CHARACTERS else 0)


def test_a_tag_within_a_value_is_text() -> None:
    call = ToolCall("say", {"text": '</tool_call><tool_call>{"name": "quit"}'})
    assert parse_tagged_call(call.tagged)[1] == call


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "no <tool_call>"),
        ('{"name": "look", "arguments": {}}', "no <tool_call>"),
        ("<tool_call>", "the call is not valid JSON"),
        ("<tool_call>look(hall)</tool_call>", "the call is not valid JSON"),
        ("<tool_call>{'name': 'look', 'arguments': {}}</tool_call>", "the call is not valid JSON"),
        ('<tool_call>{"name": "look", "arguments": {}}', "no </tool_call> after the JSON object"),
        ('<tool_call>{"name": "look", "arguments": {}} or</tool_call>', "no </tool_call> after the JSON object"),
        ('<tool_call>{"name": "look", "arguments": {}}</tool_call> I wait.', "text after </tool_call>"),
        (LOOK.tagged * 2, "more than one tool call"),
        ('<tool_call>["look"]</tool_call>', "not a JSON object"),
        ('<tool_call>{"tool": "look", "arguments": {}}</tool_call>', 'the keys must be exactly "name" and "arguments"'),
        ('<tool_call>{"name": "look"}</tool_call>', 'the keys must be exactly "name" and "arguments"'),
        ('<tool_call>{"name": "look", "arguments": {}, "id": 1}</tool_call>', "the keys must be exactly"),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" is not text'),
        (
            '<tool_call>{"name": "look", "arguments": "{}"}</tool_call>',
            '"name" is not text or "arguments" is not an object',
        ),
        ('<tool_call>{"name": "look", "name": "go", "arguments": {}}</tool_call>', "a repeated key"),
        ('<tool_call>{"name": "look", "arguments": {"a": 1, "a": 2}}</tool_call>', "a repeated key"),
        ('<tool_call>{"name": "look", "arguments": {"a": NaN}}</tool_call>', "NaN is no JSON number"),
        ('<tool_call>{"name": "look", "arguments": {"a": 1e999}}</tool_call>', "the call is not valid JSON"),
        ('<tool_call>{"name": "look", "arguments": {"a": "\\ud800"}}</tool_call>', "the call is not valid JSON"),
        ("<tool_call>" + "[" * 1999, "the call is not valid JSON"),
        (ToolCall("look", {"a": "x" * MAX_CALL_CHARACTERS}).tagged, "more than 2000 characters"),
        ("<tool_call>" + "9" * 1900 + "</tool_call>", "not a JSON object"),
    ],
)
def test_anything_else_is_refused_with_the_reason(response: str, reason: str) -> None:
    with pytest.raises(ToolCallError, match=f"^{re.escape(reason)}"):
        parse_tagged_call(response)


@given(st.text(alphabet=st.sampled_from('<>/tool_ca{}[]":,\\ud8001eN \n'), max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_action, parse_tagged_call):
        with contextlib.suppress(ToolCallError):
            parse(text)


def test_tools_are_described_in_full_and_in_short() -> None:
    line = describe([TOOL]).splitlines()[1]
    assert json.loads(line) == {"type": "function", "function": TOOL}
    assert signatures([TOOL, {"name": "wait"}]) == "look(place): Look at a place.\nwait(): "
    assert of_response(as_response("a hall")) == "a hall"
