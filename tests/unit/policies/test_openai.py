"""A policy behind a server: its connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import numpy as np
import pytest

from chat_server import ChatServer, Reply, says
from hgpo.policies import openai
from hgpo.policies.base import AnswerFailed, Request
from hgpo.policies.openai import Server, ServerPolicy


def ask_many(policy: ServerPolicy) -> set[str]:
    async def together() -> set[str]:
        responses = await asyncio.gather(*(policy.respond(Request("?"), temperature=0.0) for _ in range(5)))
        return {response.text for response in responses}

    return asyncio.run(together())


def all_closed(server: ChatServer) -> bool:
    """Whether the server has seen the end of every connection; it takes a moment to arrive."""
    until = time.monotonic() + 10
    while server.open_connections and time.monotonic() < until:
        time.sleep(0.01)
    return not server.open_connections


def test_a_policy_is_asked_in_one_event_loop_after_the_other_and_leaves_no_connection_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ChatServer(lambda body: says("look")) as server, caplog.at_level(logging.ERROR):
        policy = ServerPolicy(Server(server.url), "m", max_response_tokens=8)
        for _ in range(2):
            assert ask_many(policy) == {"look"}
            assert all_closed(server)
            gc.collect()  # what was forgotten instead would be closed now, too late
    assert not caplog.records


def test_a_policy_that_is_forgotten_disturbs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def ask_new_ones(url: str) -> set[str]:
        made = (ServerPolicy(Server(url, retries=0), "m", max_response_tokens=8) for _ in range(60))
        return {(await policy.respond(Request("?"), temperature=0.0)).text for policy in made}

    before = gc.get_threshold()
    gc.set_threshold(100)  # garbage is collected while a request is open
    try:
        with ChatServer(lambda body: says("look")) as server, caplog.at_level(logging.ERROR):
            assert asyncio.run(ask_new_ones(server.url)) == {"look"}
            assert all_closed(server)
    finally:
        gc.set_threshold(*before)
    assert not caplog.records


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_among_the_extra_fields_is_sent_and_reported(temperature: float) -> None:
    policy = ServerPolicy(Server("http://127.0.0.1:9/v1", extra={"seed": 5}), "m", max_response_tokens=8)
    body = policy.body(Request("?", np.array([0.5])), temperature)
    usage = policy.read({"choices": [{"message": {"content": "look"}}]}, body, 1, 0.0).usage
    assert body["extra_body"]["seed"] == 5
    assert usage is not None
    assert usage.parameters["seed"] == 5


def test_the_time_of_a_response_includes_its_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_UNREADABLE_WAIT", 0.05)
    replies = [Reply(b"nonsense"), Reply(b"nonsense"), says("look")]
    with ChatServer(lambda body: replies.pop(0)) as server:
        policy = ServerPolicy(Server(server.url, retries=2), "m", max_response_tokens=8)
        usage = asyncio.run(policy.respond(Request("?"), temperature=0.0)).usage
    assert usage is not None
    assert usage.requests == 3
    assert usage.seconds >= 0.05 + 0.1


def test_the_number_of_unreadable_answers_leaves_out_rejected_parameters() -> None:
    rejection = b'{"error": {"message": "temperature is not supported", "param": "temperature"}}'
    replies = [Reply(rejection, 400), Reply(b"nonsense")]
    with ChatServer(lambda body: replies.pop(0)) as server:
        policy = ServerPolicy(Server(server.url, retries=0), "m", max_response_tokens=8, warn=lambda text: None)
        with pytest.raises(AnswerFailed, match=r"^1 unreadable answer of the server; "):
            asyncio.run(policy.respond(Request("?"), temperature=0.0))
