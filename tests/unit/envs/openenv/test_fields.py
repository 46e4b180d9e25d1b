"""What answers mean: of this package's server, of the usual text environments, and of none."""

from __future__ import annotations

from typing import Any

import pytest

from hgpo.envs.env_checker import EnvContractError, check_step
from hgpo.envs.openenv.client import ServerSettings, action_field
from hgpo.envs.openenv.protocol import parse_address


def play(**options: Any) -> ServerSettings:
    return ServerSettings(parse_address("http://127.0.0.1:8000"), 1.0, "text", **options)


def read(observation: Any, reward: Any = None, done: Any = False, **options: Any) -> tuple[Any, ...]:
    result = play(**options).read({"observation": observation, "reward": reward, "done": done})
    return check_step("a task", 1, result)


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"text": "here", "won": False}, "here"),
        ({"echoed_message": "echo", "message_length": 4}, "echo"),
        ({"prompt": "all of it", "messages": [{"content": "old"}, {"content": "new"}]}, "new"),
        ({"prompt": "all of it", "messages": []}, "all of it"),
        ({"stdout": "", "stderr": "", "exit_code": 0}, ""),
        ({"text": "", "message": "said"}, "said"),
    ],
)
def test_the_text_is_found_where_it_usually_is(observation: dict[str, Any], text: str) -> None:
    assert read(observation)[0] == text


def test_a_win_is_told_or_is_a_reward_at_the_end() -> None:
    assert read({"text": "", "won": True}, 0.0, True)[4]["won"] is True
    assert read({"text": "", "won": False}, 1.0, True)[4]["won"] is False
    assert read({"text": ""}, 1.0, True)[4]["won"] is True
    assert read({"text": ""}, 1.0, False)[4]["won"] is False
    assert read({"text": ""}, 0.5, True, win_reward=0.5)[4]["won"] is True
    assert read({"text": "", "won": 1}, 0.0, True)[4]["won"] is False


def test_an_episode_that_was_cut_is_truncated() -> None:
    assert read({"text": "", "truncated": True}, 0.0, True)[2:4] == (False, True)
    assert read({"text": "", "truncated": False}, 0.0, True)[2:4] == (True, False)


def test_lengths_are_limited() -> None:
    long = {"text": "x" * 30_000, "task": "y" * 30_000, "admissible_commands": ["go", "z" * 600, *["a"] * 2000]}
    text, *_, info = read(long)
    assert (len(text), len(info["task"])) == (20_000, 20_000)
    assert text.endswith(" …")
    assert len(info["admissible_commands"]) == 999
    tools = [{"name": "look"}]
    assert read({"text": "", "tools": tools})[4]["tools"] == tools
    assert "tools" not in read({"text": "", "tools": tools * 2000})[4]


def test_fields_of_another_meaning_are_left_out() -> None:
    other = {"score": 57, "task": 3, "admissible_commands": [1, 2], "tools": ["look"], "state_key": {"x": 1}}
    assert not other.keys() & read({"text": "", **other})[4].keys()
    kept = {"score": 0.5, "state_key": "x"}
    assert read({"text": "", **kept})[4].items() >= kept.items()


@pytest.mark.parametrize(
    ("answer", "fields", "message"),
    [
        ({"observation": "here"}, {}, "needs `observation`"),
        ({"observation": {"text": "a"}, "done": 1}, {}, "needs `observation`"),
        ({"observation": {"board": [1]}}, {}, "text_field"),
        ({"observation": {"text": "a"}}, {"text_field": "words"}, "no text at words"),
        ({"observation": {"text": "a"}, "reward": "1"}, {}, "reward must be a number .* got '1'"),
        ({"observation": {"text": "a"}, "reward": 1e300}, {}, "reward must be a number"),
        ({"observation": {"text": "a"}, "reward": 10**400}, {}, "reward must be a number"),
        ({"observation": {"text": "a"}, "reward": float("nan")}, {}, "reward must be a number"),
    ],
)
def test_an_answer_that_is_none_is_a_fault(answer: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        play(**fields).read(answer)


@pytest.mark.parametrize(
    ("properties", "required", "found"),
    [
        ({"text": {"type": "string"}}, ["text"], "text"),
        ({"metadata": {}, "message": {"type": "string"}}, ["message"], "message"),
        ({"guess": {"type": "string"}, "metadata": {}}, ["guess"], "guess"),
        ({"move": {"type": "integer"}}, ["move"], None),
        ({}, [], None),
    ],
)
def test_the_schema_says_which_field_takes_an_action(properties: Any, required: Any, found: str | None) -> None:
    assert action_field({"action": {"properties": properties, "required": required}}) == found
    assert action_field(None) is None
