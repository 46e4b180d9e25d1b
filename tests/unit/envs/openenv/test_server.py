"""Our server and our client over a real socket: what each bears of the other."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
import urllib.request
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

import pytest

from environment_servers import FEW, OPTIONS, environment_server

websockets = pytest.importorskip("websockets", reason="pip install 'hgpo[openenv]' to serve and to be served")

from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402
from websockets.sync.client import connect  # noqa: E402
from websockets.sync.server import serve  # noqa: E402

from hgpo.envs import make  # noqa: E402
from hgpo.envs.env_checker import EnvContractError  # noqa: E402
from hgpo.envs.openenv.client import read_page  # noqa: E402
from hgpo.envs.openenv.protocol import parse_address  # noqa: E402
from hgpo.envs.openenv.server import Limits, own_hosts  # noqa: E402
from hgpo.envs.wrappers import LimitedSuite  # noqa: E402


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with environment_server() as where:
        yield where


def socket_of(address: str) -> str:
    return address.replace("http", "ws") + "/ws"


def ask(socket: Any, message: Any) -> dict[str, Any]:
    socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
    answer: dict[str, Any] = json.loads(socket.recv(timeout=30))
    return answer


def won_by_its_expert(suite: Any, split: str) -> int:
    won = 0
    for task in LimitedSuite(suite, 30).tasks(split):
        environment, expert = task.make(), suite.expert()
        observation, info = environment.reset(seed=1)
        expert.reset(observation, info)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, info = environment.step(expert.act(observation, info))
            ended = terminated or truncated
        won += reward == 1.0 and info["won"]
    return won


def test_a_served_environment_is_played_as_if_it_were_here(address: str) -> None:
    suite = make(f"openenv:{address}", expert="alfworld")
    here = make("alfworld", **OPTIONS)
    assert suite.splits == here.splits
    assert {split: len(suite.tasks(split)) for split in suite.splits} == FEW
    assert won_by_its_expert(suite, "valid_unseen") == won_by_its_expert(here, "valid_unseen") == 4
    starts = [one.tasks("train")[3].make().reset(seed=5)[0] for one in (suite, here)]
    assert starts[0] == starts[1]


def test_tools_may_ask_after_health_and_schema(address: str) -> None:
    def page(path: str) -> Any:
        with urllib.request.urlopen(address + path, timeout=30) as answer:
            return json.load(answer)

    assert page("/health") == {"status": "healthy"}
    assert page("/metadata")["name"] == "alfworld"
    assert page("/schema")["action"]["required"] == ["text"]
    with pytest.raises(HTTPError) as refused:
        page("/elsewhere")
    assert refused.value.code == HTTPStatus.NOT_FOUND


def test_web_pages_and_other_names_are_refused(address: str) -> None:
    with pytest.raises(InvalidStatus):
        connect(socket_of(address), origin="http://evil.example")
    with pytest.raises(InvalidStatus):
        connect(socket_of(address), additional_headers={"Host": "evil.example"})


def test_bad_messages_leave_the_session_as_it_was(address: str) -> None:
    with connect(socket_of(address)) as socket:
        start = ask(socket, {"type": "reset", "data": {"task": 1}})
        for bad in ("{", b"\x00", "[]", {"type": "step", "data": {"text": 1}}, {"type": "reset", "data": {"task": 99}}):
            assert ask(socket, bad)["type"] == "error"
        ask(socket, {"type": "step", "data": {"text": "inventory"}})
        assert ask(socket, {"type": "state"})["data"]["step_count"] == 1
        assert ask(socket, {"type": "reset", "data": {"task": 1}}) == start


def test_sessions_messages_and_silence_are_limited() -> None:
    limits = Limits(sessions=1, message_bytes=1_000, idle_seconds=1.0)
    with environment_server(limits=limits) as address, connect(socket_of(address)) as first:
        ask(first, {"type": "state"})
        with connect(socket_of(address)) as second:
            told = json.loads(second.recv(timeout=30))
            assert told["data"]["code"] == "CAPACITY_REACHED"
            with pytest.raises(ConnectionClosed):
                second.recv(timeout=30)
        with pytest.raises(EnvContractError, match="max-sessions"):
            make(f"openenv:{address}")
        told = json.loads(first.recv(timeout=30))
        assert "after 1 s without a message" in told["data"]["message"]
        with pytest.raises(ConnectionClosed):
            first.recv(timeout=30)
        with connect(socket_of(address)) as third:
            third.send("x" * 2_000)
            with pytest.raises(ConnectionClosed, match="1009"):
                third.recv(timeout=30)
        with connect(socket_of(address)) as fourth:  # and the place is free again
            assert ask(fourth, {"type": "state"})["type"] == "state"


@pytest.mark.parametrize("numbers", [{"sessions": 0}, {"message_bytes": -1}, {"idle_seconds": 0.0}])
def test_limits_of_nothing_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Limits(**numbers)


def test_a_server_that_dies_says_what_to_do() -> None:
    with environment_server() as address:
        suite = LimitedSuite(make(f"openenv:{address}"), 12)
        environment = suite.tasks("train")[0].make()
        environment.reset(seed=1)
    with pytest.raises(EnvContractError, match=r"train/0000.*connection ended.*hgpo train --resume"):
        environment.step("inventory")
    with pytest.raises(EnvContractError, match=r"cannot be reached.*hgpo serve-env"):
        make(f"openenv:{address}")


def test_a_reset_after_an_error_opens_another_session(address: str) -> None:
    environment = make(f"openenv:{address}", action_field="move").tasks("train")[0].make()
    started = environment.reset(seed=1)
    with pytest.raises(EnvContractError, match="'move' is unknown"):
        environment.step("look")
    assert environment.reset(seed=1) == started


def test_a_reset_that_fails_within_an_episode_ends_it() -> None:
    with environment_server() as address:
        environment = make(f"openenv:{address}").tasks("train")[0].make()
        environment.reset(seed=1)
    with pytest.raises(EnvContractError, match="connection ended"):
        environment.reset(seed=1)
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step("look")


def test_an_environment_that_nobody_holds_gives_its_session_back() -> None:
    with environment_server(limits=Limits(sessions=2)) as address:
        suite = make(f"openenv:{address}")
        for _ in range(6):
            suite.tasks("train")[0].make().reset(seed=1)
            _wait_for_a_place(address)


def _wait_for_a_place(address: str) -> None:
    for _ in range(100):
        with connect(socket_of(address)) as socket:
            if ask(socket, {"type": "state"})["type"] == "state":
                return
        time.sleep(0.05)
    raise AssertionError("no session came free")


def test_an_environment_keeps_no_ended_session(address: str) -> None:
    environment = make(f"openenv:{address}").tasks("train")[0].make()
    kept = []
    for _ in range(3):
        environment.reset(seed=1)
        kept.append(len(weakref.finalize._registry))  # type: ignore[attr-defined]
        while not any(environment.step("look")[2:4]):
            pass
    assert kept[0] == kept[1] == kept[2]


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200,
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff",
    ],
)
def test_a_page_that_is_no_http_is_not_read(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            client, _ = server.accept()
            with client:
                client.recv(10_000)
                client.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        here = parse_address(f"http://127.0.0.1:{server.getsockname()[1]}")
        assert read_page(here, "/schema", timeout=5.0) is None
        thread.join()


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], ids=["head", "body"])
def test_a_page_that_comes_byte_by_byte_is_given_up_after_the_time_out(head: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.sendall(head)
                while True:
                    client.sendall(b" ")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        here, began = parse_address(f"http://127.0.0.1:{server.getsockname()[1]}"), time.monotonic()
        assert read_page(here, "/schema", timeout=0.3) is None
        assert 0.2 < time.monotonic() - began < 3
        thread.join(10)
        assert not thread.is_alive()


def test_the_usual_port_is_left_out_of_the_host() -> None:
    assert {"127.0.0.1:8000", "localhost:8000", "[::1]:8000"} <= own_hosts("127.0.0.1", 8000)
    assert not {"127.0.0.1", "localhost"} & own_hosts("127.0.0.1", 8000)
    assert {"127.0.0.1", "localhost:80", "[::1]", "127.0.0.2"} <= own_hosts("127.0.0.2", 80)


def test_a_redirect_is_not_followed(address: str) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", address + self.path)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(EnvContractError, match="cannot be reached"):
            make(f"openenv:http://127.0.0.1:{server.server_port}")
        server.shutdown()


class _Strange:
    """A server of somebody's with answers of its own, by the kind of message."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def __call__(self, socket: Any) -> None:
        for received in socket:
            answer = self.answers[json.loads(received)["type"]]
            if answer is None:
                return
            socket.send(answer(received) if callable(answer) else answer)


def strange(**answers: Any) -> Any:
    """The server of a `_Strange`, whose state is empty unless told otherwise."""
    return serve(_Strange(**{"state": '{"type": "state", "data": {}}', **answers}), "127.0.0.1", 0)


@contextmanager
def suite_of(server: Any, **options: Any) -> Iterator[Any]:
    from threading import Thread

    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.socket.getsockname()[1]
    try:
        yield make(f"openenv:http://127.0.0.1:{port}", action_field="move", timeout=5, **options)
    finally:
        server.shutdown()
        thread.join()


def first_step(server: Any, **options: Any) -> Any:
    with suite_of(server, **options) as suite:
        environment = suite.tasks("train")[0].make()
        environment.reset()
        return environment.step("go")


STARTED = '{"type": "observation", "data": {"observation": {"text": "here"}, "reward": null, "done": false}}'
REFUSED = '{"type": "error", "data": {"message": "\\u001b[2J no", "code": "EXECUTION_ERROR"}}'


@pytest.mark.parametrize(
    ("answers", "options", "message"),
    [
        ({"reset": "hello"}, {}, "not JSON"),
        ({"reset": "[]"}, {}, "JSON object"),
        ({"reset": '{"type": "observation"}'}, {}, "no `data`"),
        ({"reset": None}, {}, "connection ended"),
        (
            {"reset": '{"type": "error", "data": {"message": "\\u001b[2J no", "code": "EXECUTION_ERROR"}}'},
            {},
            "no .EXEC",
        ),
        ({"reset": STARTED, "step": STARTED.replace("here", "x" * 1_100_000)}, {}, "longer than"),
        ({"reset": STARTED, "step": STARTED.replace("null", "NaN")}, {}, "reward must be a number .* got nan"),
        ({"reset": STARTED.replace("false", "true")}, {}, "ended before its first step"),
    ],
)
def test_a_strange_server_is_a_clear_error(answers: Any, options: Any, message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        first_step(strange(**answers), **options)


@pytest.mark.parametrize("same_start", [True, False])
def test_a_server_that_ignores_the_seed_is_noticed_although_a_task_is_read_anew(same_start: bool) -> None:
    """As verl's environment workers do for each episode."""
    numbers = itertools.count()
    server = strange(reset=lambda _: STARTED.replace("here", f"place {next(numbers)}"))
    with suite_of(server, same_start=same_start) as suite:
        suite.tasks("train")[0].make().reset(seed=3)
        suite.tasks("train")[1].make().reset(seed=3)  # another task
        with pytest.raises(EnvContractError, match="ignores the seed") if same_start else nullcontext():
            suite.tasks("train")[0].make().reset(seed=3)


def test_another_server_is_played_by_seeds() -> None:
    sent: list[Any] = []

    def moved(received: str) -> str:
        sent.append(json.loads(received)["data"])
        return STARTED.replace("null", "1.0").replace('"done": false', '"done": true')

    def start(received: str) -> str:
        sent.append(json.loads(received)["data"])
        return STARTED

    observation, reward, terminated, _, info = first_step(
        strange(reset=start, step=moved), seeds={"train": 3, "test": 2}
    )
    assert (observation, reward, terminated, info["won"]) == ("here", 1.0, True, True)
    assert sent == [{"seed": 0}, {"move": "go"}]
