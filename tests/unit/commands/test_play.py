"""A person at the keyboard, and the same game's pages on a socket of this machine."""

from __future__ import annotations

import io
import re
import socket
import sys
from http.client import HTTPConnection
from urllib.parse import urlencode

import pytest

from corridor import Corridor
from hgpo.cli import main


def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, *words: str) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["play", *words]) == 0
    return capsys.readouterr().out


def test_the_task_is_said_where_the_page_does_not_say_it(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "\n", "webshop")
    assert re.match(r"\[task: \w+ \w+ .*, price under \d+\]\nsearch\n", shown)
    shown = play(monkeypatch, capsys, "\n", "webshop", "--option", "observation_mode=text")
    assert "[task:" not in shown
    assert "price under" in shown


def test_a_search_bar_is_listed_where_there_is_one(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "?\nsearch[mug]\n?\n\n", "webshop")
    before, _, after = shown.partition("page 1")
    assert "search[words]" in before
    assert "search[words]" not in after
    assert "click[back to search]\nclick[next >]" in after


def test_text_of_an_environment_cannot_act_on_the_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Corridor, "_look", lambda self: "a\x1b[2J\u200fb\u202ec\nsecond\tline")
    assert "a�[2J�b�c\nsecond\tline\n" in play(monkeypatch, capsys, "\n", "corridor:CorridorSuite")


def test_household_games_list_what_they_did(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "?\n\n", "alfworld")
    assert "\ninventory\nlook\n" in shown
    assert "[task:" not in shown
    assert "search[" not in shown


def test_the_browser_and_the_terminal_play_one_game(monkeypatch, capsys) -> None:
    class Typing(io.StringIO):
        """Lines of a person who looks at the browser in between."""

        def readline(self, *_: object) -> str:
            if not self.getvalue():
                self.address = re.search(
                    r"\[also at http://(127\.0\.0\.1:\d+)(/session/\S+)\]", capsys.readouterr().out
                )
                post(self.address, "search[scarf]")
                self.write("look\n")
                return "look\n"
            assert "page 1 #" in capsys.readouterr().out
            return "\n"

    def post(address: re.Match[str] | None, action: str) -> None:
        assert address is not None
        connection = HTTPConnection(address[1], timeout=10)
        connection.request("POST", address[2], urlencode({"action": action}))
        assert connection.getresponse().status == 303
        connection.close()

    monkeypatch.setattr(sys, "stdin", Typing())
    assert main(["play", "webshop", "--browser"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alfworld", "--browser"], "alfworld has no pages for a browser"),
        (["webshop", "--browser", "70000"], "ports are 1 to 65535"),
    ],
)
def test_a_browser_that_cannot_be(words: list[str], message: str, capsys) -> None:
    assert main(["play", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["play", "webshop", "--browser", str(port)]) == 2
    assert re.search(f"--browser {port}: .*in use; choose another port", capsys.readouterr().err)


def test_an_environment_that_breaks_its_promise_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Corridor, "_info", lambda self, won: {"task": "leave"})
    assert main(["play", "corridor:CorridorSuite"]) == 2
    error = capsys.readouterr().err
    assert "task 'train/1': reset(seed=…) has to return (observation, info), with the bool info['won']" in error
    assert error.count("\n") == 1


def test_help_says_how_to_use_a_browser(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    assert "hgpo play webshop --browser" in capsys.readouterr().out
