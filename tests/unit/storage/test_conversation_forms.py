"""Conversations as tool-calling agents and their frameworks log them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgpo.cli.main import main
from house import write_rows

LONG = "data:image/png;base64," + "A" * 5000


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def agent(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def openai(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return agent(None, tool_calls=[call])


def steps_of(tmp_path: Path, *messages: list[Any], words: tuple[str, ...] = ()) -> list[list[dict[str, Any]]]:
    """The steps that `hgpo advantages -o` writes, per trajectory; the conversations are attempts at one task."""
    rows = [
        {"group": "task", "trajectory": place, "reward": float(place % 2), "messages": talk}
        for place, talk in enumerate(messages)
    ]
    write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    assert main(["advantages", str(tmp_path / "in.jsonl"), "-o", str(out), "--force", *words]) == 0
    steps = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [[step for step in steps if step["trajectory"] == f"task/{place}"] for place in range(len(messages))]


ONE = openai("book", '{"seat": 1, "day": "may"}', "call_a")
SAME_ACTION = {
    "random ids": openai("book", '{"seat": 1, "day": "may"}', "call_b"),
    "order and spaces of arguments": openai("book", '{"day":"may",  "seat":1}', "call_a"),
    "arguments as a mapping": openai("book", {"seat": 1, "day": "may"}, "call_a"),
    "whole floats": openai("book", '{"seat": 1.0, "day": "may"}', "call_a"),
    "function_call": agent(None, function_call={"name": "book", "arguments": '{"seat": 1, "day": "may"}'}),
    "LangChain": agent(
        "", tool_calls=[{"name": "book", "args": {"seat": 1, "day": "may"}, "id": "7", "type": "tool_call"}]
    ),
    "calls as JSON text": agent(None, tool_calls=json.dumps(ONE["tool_calls"])),
    "LangChain's older forms": agent("", additional_kwargs={"tool_calls": ONE["tool_calls"]}),
    "LangChain's oldest form": agent(
        "", additional_kwargs={"function_call": {"name": "book", "arguments": '{"seat": 1, "day": "may"}'}}
    ),
    "LangChain's both forms": agent("", tool_calls=ONE["tool_calls"], additional_kwargs=dict(ONE)),
    "Anthropic": agent([{"type": "tool_use", "id": "toolu_1", "name": "book", "input": {"seat": 1, "day": "may"}}]),
    "LangChain's and Anthropic's": agent(
        [{"type": "tool_use", "id": "toolu_1", "name": "book", "input": {"seat": 1, "day": "may"}}],
        tool_calls=[{"name": "book", "args": {"seat": 1, "day": "may"}, "id": "toolu_1", "type": "tool_call"}],
    ),
    "a thought beside it": agent(
        [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "tool_use", "id": "toolu_2", "name": "book", "input": {"seat": 1, "day": "may"}},
        ]
    ),
    "reasoning_content": {**ONE, "reasoning_content": "May suits.", "refusal": None},
}
OTHER_ACTION = {
    "other arguments": openai("book", '{"seat": 2, "day": "may"}', "call_a"),
    "another tool": openai("cancel", '{"seat": 1, "day": "may"}', "call_a"),
    "arguments that are no JSON": openai("book", "seat 1", "call_a"),
    "a text beside it": {**ONE, "content": "I book."},
}


@pytest.mark.parametrize("other", [*SAME_ACTION.values(), *OTHER_ACTION.values()], ids=[*SAME_ACTION, *OTHER_ACTION])
def test_equal_calls_are_equal_actions_and_others_are_not(tmp_path: Path, other: dict[str, Any]) -> None:
    [[one], [another]] = steps_of(tmp_path, [user("hello"), ONE], [user("hello"), other])
    assert json.loads(one["action"]) == [{"name": "book", "arguments": {"seat": 1, "day": "may"}}]
    assert (one["action"] == another["action"]) == (other in SAME_ACTION.values())


@pytest.mark.parametrize(
    "as_dict", [lambda message: message, lambda message: {"type": message["type"], "data": message}]
)
def test_messages_of_langchain_are_read_as_dumped_and_as_dicts(tmp_path: Path, as_dict: Any) -> None:
    call = {"name": "book", "args": {"seat": 1}, "id": "7", "type": "tool_call"}
    talk = [
        {"type": "system", "content": "Book seats."},
        {"type": "human", "content": "hello"},
        {"type": "ai", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "booked", "tool_call_id": "7"},
        {"type": "ai", "content": "done", "tool_calls": []},
    ]
    [[first, second]] = steps_of(tmp_path, [as_dict(message) for message in talk])
    assert (first["observation"], first["action"]) == ("hello", '[{"arguments": {"seat": 1}, "name": "book"}]')
    assert (second["observation"], second["action"]) == ("booked", "done")


def test_a_system_message_begins_no_turn(tmp_path: Path) -> None:
    talk = [user("hello"), agent("a"), {"role": "system", "content": "hurry"}, agent("b"), user("so"), agent("c")]
    [steps] = steps_of(tmp_path, talk)
    assert [step["action"] for step in steps] == ["a\nb", "c"]


def test_calls_of_a_turn_are_its_last_line_in_whichever_messages_they_are(tmp_path: Path) -> None:
    """So that the state key `tool_call` finds them."""
    both = agent("I book.", tool_calls=[*ONE["tool_calls"], *openai("pay", "{}", "call_c")["tool_calls"]])
    apart = [ONE, agent("I book."), openai("pay", "{}", "call_d")]
    [[one, _], [other, _]] = steps_of(
        tmp_path, [user("hello"), both, user("so"), agent("c")], [user("hello"), *apart, user("so"), agent("c")]
    )
    assert one["action"] == other["action"]
    assert [call["name"] for call in json.loads(one["action"].splitlines()[-1])] == ["book", "pay"]


def picture(data: str, **more: Any) -> list[Any]:
    return [{"type": "image_url", "image_url": {"url": data}, **more}, {"type": "text", "text": "What is it?"}]


SAME_OBSERVATION = {
    "ids of a tool's result": (
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}],
        [{"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "ok"}]}],
    ),
    "a picture": (picture(LONG), picture(LONG)),
    "a picture's id": (picture(LONG, id="file-1"), picture(LONG, id="file-2")),
    "text and one part (always so)": ("ok", [{"type": "text", "text": "ok"}]),
    "OpenAI's responses": ("ok", [{"type": "input_text", "text": "ok"}]),
    "key order (always so)": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
}
OTHER_OBSERVATION = {
    "another picture": (picture(LONG), picture(LONG[:-1] + "B")),
    "a picture and none": (picture(LONG), "What is it?"),
    "an id of the environment's own": ([{"id": 1, "name": "lamp"}], [{"id": 2, "name": "lamp"}]),
}


@pytest.mark.parametrize(
    "pair",
    [*SAME_OBSERVATION.values(), *OTHER_OBSERVATION.values()],
    ids=[*SAME_OBSERVATION, *OTHER_OBSERVATION],
)
def test_equal_contents_are_equal_observations_and_others_are_not(tmp_path: Path, pair: tuple[Any, Any]) -> None:
    [[one], [other]] = steps_of(tmp_path, *([user(content), agent("go")] for content in pair))
    is_same = pair in SAME_OBSERVATION.values()
    assert (one["observation"] == other["observation"]) == is_same
    assert len(one["observation"]) < 300
    assert one["level_0_size"] == (2 if is_same else 1)


HELLO, THOUGHT = agent("Hello! How can I help?"), agent("I look it up.")
FORMS = {
    "the agent opens": ([HELLO, user("hall"), agent("go")], [("", "Hello! How can I help?"), ("hall", "go")]),
    "the agent opens after a policy": (
        [{"role": "system", "content": "rules"}, HELLO, user("hall"), agent("go")],
        [("rules", "Hello! How can I help?"), ("hall", "go")],
    ),
    "the task is in the system message": (
        [{"role": "developer", "content": "Find the key."}, agent("look"), user("hall"), agent("go")],
        [("Find the key.", "look"), ("hall", "go")],
    ),
    "two messages in a row": (
        [user("hall"), THOUGHT, ONE, user("ok"), agent("go")],
        [("hall", 'I look it up.\n[{"arguments": {"day": "may", "seat": 1}, "name": "book"}]'), ("ok", "go")],
    ),
    "several results in a row (always so)": (
        [user("hall"), agent("go"), user("a"), {"role": "tool", "tool_call_id": "x", "content": "b"}, agent("take")],
        [("hall", "go"), ("a\nb", "take")],
    ),
    "an empty turn (always so)": ([user("hall"), agent(None), user("a"), agent("take")], [("hall", ""), ("a", "take")]),
    "ShareGPT's roles": (
        [
            {"from": "system", "value": "rules"},
            {"from": "human", "value": "hall"},
            {"from": "gpt", "value": "go"},
            {"from": "observation", "value": "kitchen"},
            {"from": "gpt", "value": "take"},
        ],
        [("hall", "go"), ("kitchen", "take")],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), FORMS.values(), ids=FORMS)
def test_turns_of_every_form(tmp_path: Path, messages: list[Any], expected: list[tuple[str, str]]) -> None:
    [steps, _] = steps_of(tmp_path, messages, messages)
    assert [(step["observation"], step["action"]) for step in steps] == expected


def lines_of(tmp_path: Path, file: str, *words: str) -> list[dict[str, Any]]:
    out = tmp_path / "out.jsonl"
    assert main(["advantages", str(tmp_path / file), "-o", str(out), "--force", *words]) == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


TALK = [user("hall"), agent("go")]


def test_an_array_of_conversations_with_its_own_keys(tmp_path: Path) -> None:
    """As tau-bench writes its historical trajectories."""
    rows = [{"task_id": task, "trial": trial, "reward": trial, "traj": TALK} for task in (0, 1) for trial in (0, 1)]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2), encoding="utf-8")
    words = [word for pair in ("group=task_id", "trajectory=trial", "messages=traj") for word in ("--column", pair)]
    steps = lines_of(tmp_path, "a.json", *words)
    assert [(step["trajectory"], step["level_0_trajectories"]) for step in steps] == [
        ("0/0", 2), ("0/1", 2), ("1/0", 2), ("1/1", 2)
    ]  # fmt: skip
    assert main(["inspect", str(tmp_path / "a.json"), *words, "-o", str(tmp_path / "report.html")]) == 0


def test_sharegpt_files_need_no_flag(tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "hall"}, {"from": "gpt", "value": "go"}]
    rows = [{"group": 0, "reward": reward, "conversations": talk} for reward in (0, 1)]
    write_rows(tmp_path / "a.jsonl", rows)
    assert [step["observation"] for step in lines_of(tmp_path, "a.jsonl")] == ["hall", "hall"]


def test_keys_inside_steps_may_have_other_names(tmp_path: Path) -> None:
    steps = [{"obs": {"room": 1}, "act": "go", "r": 0.5}, {"obs": {"room": 2}, "act": "take", "r": 1}]
    rows = [{"group": 0, "trajectory": place, "steps": steps} for place in (0, 1)]
    write_rows(tmp_path / "a.jsonl", rows)
    words = [word for pair in ("observation=obs", "action=act", "reward=r") for word in ("--column", pair)]
    found = lines_of(tmp_path, "a.jsonl", *words)
    assert [(step["observation"], step["action"], step["reward"]) for step in found[:2]] == [
        ('{"room": 1}', "go", 0.5),
        ('{"room": 2}', "take", 1.0),
    ]


def test_a_conversation_as_json_text(tmp_path: Path) -> None:
    rows = [{"group": 0, "reward": reward, "messages": json.dumps(TALK)} for reward in (0, 1)]
    write_rows(tmp_path / "a.jsonl", rows)
    assert [step["action"] for step in lines_of(tmp_path, "a.jsonl", "--trajectories")] == ["go", "go"]


REJECTED = {
    "an array in .jsonl": ("a.jsonl", "[\n" + json.dumps({"group": 0}) + "\n]", "give it a name in .json"),
    "an object in .json": ("a.json", '{"data": []}', "expected an array of objects, got dict with data"),
    "a number in an array": ("a.json", '[{"group": 0, "reward": 1, "messages": []}, 7]', "row 1: not an object"),
    "no JSON": ("a.json", "[{", "not JSON"),
    "keys inside steps": (
        "a.jsonl",
        '{"group": 0, "reward": 1, "steps": [{"obs": 1, "act": 2}]}',
        "step 0 has no 'observation'. It has obs, act; --column NAME=KEY",
    ),
    "a key of the line": (
        "a.jsonl",
        '{"task": 0, "reward": 1, "messages": []}',
        "the same in all its trajectories. It has task, reward, messages; --column NAME=KEY",
    ),
    "a call without a name": (
        "a.jsonl",
        json.dumps({"group": 0, "reward": 1, "messages": [user("a"), agent("", tool_calls=[{"id": "x"}])]}),
        "message 1: a tool call has no name; it has id",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "message"), REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_read_is_rejected_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["advantages", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
