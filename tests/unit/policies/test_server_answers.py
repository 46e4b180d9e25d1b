"""`hgpo eval --server` beside servers that answer in their own way: what is played, lost, failed, sent and said."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chat_server import ChatServer, Reply, says
from hgpo.cli.main import main

TESTS = Path(__file__).parents[2]
GAMES = 3
"""The expert wins those with the door at places 2 and 4; place 6 is out of reach."""
_GOAL = re.compile(r"at place (\d+)\s.*at place (-?\d+)\D*$", re.DOTALL)
Body = dict[str, Any]


def action(body: Body) -> str:
    """The action of the corridor's expert."""
    goal, place = map(int, _GOAL.search(body["messages"][-1]["content"]).groups())  # type: ignore[union-attr]
    return "open door" if place == goal else "go right"


def far(body: Body) -> bool:
    return "at place 4 " in body["messages"][-1]["content"]


def reply(body: Body, usage: Any = None, finish: Any = "stop", **message: Any) -> Reply:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": action(body), **message}}
    usage = {"usage": usage} if usage != "missing" else {}
    return Reply(json.dumps({"id": "c", "object": "chat.completion", "choices": [choice], **usage}).encode())


def error(status: int, message: str, **fields: Any) -> Reply:
    return Reply(json.dumps({"error": {"message": message, **fields}}).encode(), status)


def eval_words(server: ChatServer, output: Path) -> list[str]:
    return [
        *("eval", "m", "--server", server.url, "--env", "corridor:CorridorSuite", "--split", "held_out", "--quiet"),
        *("-o", str(output), "agent.template=compact", "environment.train_split=train", "environment.max_steps=5"),
        *(f"environment.options.longest={2 * GAMES}", "policy.options.retries=1"),
    ]


def evaluate(answer: Callable[[Body], Reply], folder: Path, *more: str) -> tuple[int, dict[str, Any], list[Body]]:
    """Exit status, the result file and the requests."""
    output = folder / "out.json"
    with ChatServer(answer) as server:
        status = main([*eval_words(server, output), *more])
    return status, json.loads(output.read_text()) if output.exists() else {}, server.asked


@pytest.mark.slow
def test_pytorch_is_not_loaded(tmp_path: Path) -> None:
    code = "import sys; from hgpo.cli.main import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    with ChatServer(lambda body: says(action(body))) as server:
        command = [sys.executable, "-c", code, *eval_words(server, tmp_path / "out.json")]
        ended = subprocess.run(command, cwd=TESTS, stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "0 False\n"


@pytest.mark.parametrize(
    ("usage", "tokens", "estimated"),
    [
        ({"prompt_tokens": "5", "completion_tokens": 2.0}, 5, False),
        ({"prompt_tokens": 5, "completion_tokens": None}, 5, True),
        ("missing", None, True),
        pytest.param("5 tokens", None, True, marks=pytest.mark.slow),
    ],
    ids=["as text", "partly null", "missing", "text"],
)
def test_usage_in_any_form(
    usage: Any, tokens: int | None, estimated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, stored, asked = evaluate(lambda body: reply(body, usage), tmp_path)
    assert (status, stored["episodes"], stored["failed"]) == (0, GAMES, 0)
    assert stored["tokens_estimated"] == (len(asked) if estimated else 0)
    assert stored["tokens"]["prompt"] == 5 * len(asked) if tokens else stored["tokens"]["prompt"] > len(asked)
    assert capsys.readouterr().err.count("does not report all tokens") == estimated


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "text", "text": "ACTION"}]},
        {"content": [{"type": "reasoning", "text": "go left"}, {"type": "text", "text": "ACTION"}]},
        {"content": "<think>go left</think>ACTION"},
        {"content": "go left</think>ACTION"},
        {"finish": None},
        pytest.param({"finish": "eos"}, marks=pytest.mark.slow),
    ],
    ids=["parts", "thought as a part", "thought", "prefilled thought", "no reason: before", "other reason: before"],
)
def test_an_answer_in_another_form_is_played(fields: dict[str, Any], tmp_path: Path) -> None:
    def answer(body: Body) -> Reply:
        return reply(body, **json.loads(json.dumps(fields).replace("ACTION", action(body))))

    status, stored, _ = evaluate(answer, tmp_path)
    assert (status, stored["failed"], stored["valid_actions"]) == (0, 0, 1.0)
    assert stored["success"]["mean"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("fields", "stored_text"),
    [
        ({"content": None, "refusal": "I can't help."}, "I can't help."),
        ({"content": None, "reasoning_content": "Hm, open door"}, "<think>\nHm, open door\n</think>"),
        ({"content": "nice \ud83d"}, "nice ?"),
        ({"content": "", "finish": "length", "reasoning": "Hm"}, "<think>\nHm\n</think>"),
    ],
    ids=["refusal", "thought", "half an emoji", "cut in the thought"],
)
def test_a_response_without_an_action_is_a_step_and_shows_why(
    fields: dict[str, Any], stored_text: str, tmp_path: Path
) -> None:
    status, stored, _ = evaluate(lambda body: reply(body, **fields) if far(body) else reply(body), tmp_path)
    assert (status, stored["episodes"], stored["failed"]) == (0, GAMES, 0)
    assert stored["success"]["mean"] == pytest.approx(1 / 3)
    rows = [json.loads(line) for line in (tmp_path / "out.rollouts.jsonl").read_text().splitlines()]
    assert {row["response"] for row in rows if row["task_id"] == "held_out/4"} == {stored_text}


CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"error": {"message": "Provider is down", "code": 502}}, "Provider is down"),
        ({"error": "overloaded"}, "overloaded"),
        ({"choices": [{"error": {"message": "cut off", "code": 502}, "message": {"content": ""}}]}, "cut off"),
        ({"choices": []}, "it has no choices"),
        pytest.param({"choices": None}, "it has no choices", marks=pytest.mark.slow),
        ({"choices": [{**CHOICE, "message": None}]}, "its choice has no message"),
        (
            {"choices": [{**CHOICE, "message": {"content": None, "tool_calls": [{"function": {"name": "look"}}]}}]},
            "look",
        ),
        ({"choices": [{**CHOICE, "finish_reason": "content_filter", "message": {"content": None}}]}, "content filter"),
        ([1, 2], "it is not a JSON object"),
        ("busy", "it is not a JSON object: busy"),
    ],
)
def test_what_cannot_be_used_fails_its_episode_with_the_servers_words(bad: Any, reason: str, tmp_path: Path) -> None:
    status, stored, _ = evaluate(
        lambda body: Reply(json.dumps(bad).encode()) if far(body) else says(action(body)), tmp_path
    )
    assert (status, stored["episodes"], stored["failed"]) == (0, GAMES - 1, 1)
    assert stored["failures"][0]["task"] == "held_out/4"
    assert reason in stored["failures"][0]["reason"]


@pytest.mark.parametrize(
    "bad",
    [
        error(402, "Insufficient credits"),
        Reply(json.dumps({"error": {"message": "Insufficient credits", "code": 402}}).encode()),
        error(400, "Your credit balance is too low: Insufficient credits"),
        error(400, "API key not valid: Insufficient credits"),
        *(error(status, "Insufficient credits") for status in (401, 403, 404)),
    ],
    ids=["402", "200 with 402", "400 Anthropic", "400 Gemini", "401", "403", "404"],
)
def test_what_concerns_every_request_ends_the_command_at_once(
    bad: Reply, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, stored, asked = evaluate(lambda body: bad, tmp_path, "--at-once", "2")
    assert (status, stored) == (2, {})
    assert "Insufficient credits" in capsys.readouterr().err
    assert len(asked) <= 2


def test_a_full_context_is_a_loss_that_is_counted(tmp_path: Path) -> None:
    words = "This model's maximum context length is 4096 tokens. However, your messages resulted in 4133 tokens."

    def answer(body: Body) -> Reply:
        return (
            error(400, words) if far(body) and "at place 3" in body["messages"][-1]["content"] else says(action(body))
        )

    status, stored, _ = evaluate(answer, tmp_path)
    assert (status, stored["episodes"], stored["failed"], stored["context_full"]) == (0, GAMES, 0, 1)
    assert stored["success"]["mean"] == pytest.approx(1 / 3)
    assert stored["tasks_won"]["held_out/4"] == 0.0
    again = evaluate(answer, tmp_path)
    assert again[1]["context_full"] == 1
    assert not again[2]  # it is not played again


def test_a_context_that_is_too_small_for_every_game_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, stored, _ = evaluate(lambda body: error(400, "prompt is too long: 9 tokens > 8 maximum"), tmp_path)
    assert (status, stored) == (2, {})
    assert f"none of {GAMES} episodes has a step: ServerContextFull" in capsys.readouterr().err


NOT_SUPPORTED = "Unsupported parameter: '{}' is not supported with this model."
EXTRA = "policy.options.extra={top_p=0.9, logprobs=true}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("temperature", "'temperature' does not support 0.4. Only the default (1) value is supported."),
        ("max_tokens", NOT_SUPPORTED + " Use 'max_completion_tokens' instead."),
        ("seed", NOT_SUPPORTED),
        ("top_p", NOT_SUPPORTED),
    ],
)
def test_a_rejected_parameter_is_left_out_said_and_recorded(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: Body) -> Reply:
        return error(400, message.format(name)) if name in body else says(action(body))

    status, stored, asked = evaluate(answer, tmp_path, EXTRA, "--at-once", "1")
    assert (status, stored["episodes"], stored["failed"]) == (0, GAMES, 0)
    assert stored["parameters"][name] is None
    assert sum(name in body for body in asked) == 1
    assert capsys.readouterr().err.count(f"m does not accept {name} = ") == 1
    assert stored["temperature"] == (1.0 if name == "temperature" else 0.4)
    if name == "max_tokens":
        assert stored["parameters"]["max_completion_tokens"] == asked[0]["max_tokens"]
    assert evaluate(answer, tmp_path, EXTRA)[1]["parameters"] == stored["parameters"]  # nothing is asked again


def test_a_parameter_out_of_range_ends_the_command_with_the_servers_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."
    status, stored, _ = evaluate(lambda body: error(400, words), tmp_path)
    assert (status, stored) == (2, {})
    assert words in capsys.readouterr().err


def test_an_answer_that_openai_cuts_before_it_begins_is_a_step(tmp_path: Path) -> None:
    words = "Could not finish the message because max_tokens or model output limit was reached."
    status, stored, _ = evaluate(lambda body: error(400, words) if far(body) else says(action(body)), tmp_path)
    assert (status, stored["episodes"], stored["failed"]) == (0, GAMES, 0)
    assert stored["success"]["mean"] == pytest.approx(1 / 3)
