"""A client's messages and their answers, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from environment_servers import FEW, OPTIONS, served
from hgpo.envs import make
from hgpo.envs.openenv.protocol import BadMessage, as_text, parse_message
from hgpo.envs.openenv.server import ClientSession, Served


@pytest.fixture(scope="module")
def tasks() -> Served:
    return served()


def data(session: ClientSession, kind: str, **sent: Any) -> dict[str, Any]:
    answer = session.answer({"type": kind, "data": sent})
    assert answer is not None
    told: dict[str, Any] = json.loads(as_text(answer))["data"]
    return told


def test_an_episode_from_reset_to_the_win(tasks: Served) -> None:
    session, expert = ClientSession(tasks), make("alfworld", **OPTIONS).expert()
    assert expert is not None
    told = data(session, "reset", split="valid_unseen", task=1, seed=3, episode_id="mine")
    assert (told["reward"], told["done"]) == (None, False)
    expert.reset(told["observation"]["text"], told["observation"])
    steps = 0
    while not told["done"]:
        told = data(session, "step", text=expert.act(told["observation"]["text"], told["observation"]))
        steps += 1
    assert told["reward"] == 1.0
    assert told["observation"]["won"] is True
    state = data(session, "state")
    assert (state["episode_id"], state["step_count"], state["split"]) == ("mine", steps, "valid_unseen")
    assert state["task_id"].startswith("valid_unseen/0001")
    assert state["splits"] == FEW
    with pytest.raises(BadMessage, match="reset first"):
        data(session, "step", text="inventory")


def test_sessions_share_nothing(tasks: Served) -> None:
    one, other = ClientSession(tasks), ClientSession(tasks)
    go = next(
        command
        for command in data(one, "reset", task=0)["observation"]["admissible_commands"]
        if command.startswith("go to")
    )
    data(other, "reset", task=0)
    data(one, "step", text=go)
    looks = [data(session, "step", text="look")["observation"]["text"] for session in (one, other)]
    assert looks[0] != looks[1]
    assert data(one, "state")["step_count"] == 2
    assert data(other, "state")["step_count"] == 1


def test_a_seed_names_a_task_and_without_one_tasks_come_in_turn() -> None:
    tasks = served()
    by_seed = [data(ClientSession(tasks), "reset", seed=seed)["observation"]["text"] for seed in (0, 1, 0, 6)]
    assert by_seed[0] == by_seed[2] == by_seed[3] != by_seed[1]
    in_turn = [data(ClientSession(tasks), "reset")["observation"]["text"] for _ in range(2)]
    assert in_turn == by_seed[:2]


def test_a_cut_episode_says_so() -> None:
    session = ClientSession(served(max_steps=1))
    data(session, "reset")
    told = data(session, "step", text="inventory")
    assert (told["done"], told["observation"]["truncated"], told["observation"]["won"]) == (True, True, False)


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        ({"type": "fly"}, "UNKNOWN_TYPE", "reset, step, state or close"),
        ({}, "UNKNOWN_TYPE", "reset, step, state or close"),
        ({"type": ["step"], "data": {}}, "UNKNOWN_TYPE", "reset, step, state or close"),
        ({"type": "reset", "data": []}, "VALIDATION_ERROR", "give an object"),
        ({"type": "reset", "data": {"goal": 3}}, "VALIDATION_ERROR", "'goal' is unknown"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"seed": True}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"seed": 2**64}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"task": 6}}, "VALIDATION_ERROR", "tasks 0 to 5"),
        ({"type": "reset", "data": {"task": "0"}}, "VALIDATION_ERROR", "tasks 0 to 5"),
        ({"type": "reset", "data": {"split": ["train"]}}, "VALIDATION_ERROR", "train, valid_seen"),
        ({"type": "reset", "data": {"episode_id": "x" * 256}}, "VALIDATION_ERROR", "255"),
        ({"type": "step", "data": {"text": "inventory"}}, "EXECUTION_ERROR", "reset first"),
        ({"type": "step", "data": {"text": 3}}, "VALIDATION_ERROR", "as text"),
    ],
)
def test_what_cannot_be_answered_says_why(tasks: Served, message: dict[str, Any], code: str, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason) as refused:
        ClientSession(tasks).answer(message)
    assert refused.value.code == code


def test_a_task_that_cannot_be_made_says_why() -> None:
    size = {"products": 26, "kinds": 1, "attribute_words": 1}  # shop 30 has 7 different goals, and a shop needs 13
    suite = make("webshop", size=size, train_goals=31 * 13, valid_seen_goals=0, valid_unseen_goals=0, seed=0)
    with pytest.raises(BadMessage, match="shop 30 has only 7 different goals") as refused:
        data(ClientSession(Served("webshop", suite, ["train"])), "reset", task=31 * 13 - 1)
    assert refused.value.code == "EXECUTION_ERROR"


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "[" * 60_000, '{"a": ' * 60_000, b"{}", "9" * 60_000])
def test_text_that_is_no_message_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadMessage):
        parse_message(text)
