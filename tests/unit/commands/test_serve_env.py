"""`hgpo serve-env`: what it refuses, and that it serves until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo.cli.main import main

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "add --expose"),
        (["--host", "example.org"], "add --expose"),
        (["--port", "70000"], "ports are 1 to 65535"),
        (["--max-steps", "0"], "--max-steps 0"),
        (["--max-sessions", "0"], "sessions = 0"),
        (["--idle-seconds", "nan"], "idle-seconds = nan"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve-env", "webshop", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(number: signal.Signals) -> None:
    pytest.importorskip("websockets", reason="pip install 'hgpo[openenv]' to serve")
    from hgpo.envs import make

    words = ["serve-env", "corridor:CorridorSuite", "--port", "0", "--split", "held_out", "--max-steps", "9"]
    process = subprocess.Popen([sys.executable, "-m", "hgpo", *words], stdout=subprocess.PIPE, text=True, cwd=TESTS)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "corridor:CorridorSuite at http://127.0.0.1:" in line
        address = line.split(" at ")[1].split(": tasks")[0]
        assert make(f"openenv:{address}").splits == ("held_out",)
        process.send_signal(number)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
