"""Cost of playing through an OpenEnv server, compared with the same steps in the process.

    python benchmarks/openenv_server.py                            1,000 episodes of plugins/textcraft, 64 at a time
    python benchmarks/openenv_server.py --environment alfworld --episodes 200
    python benchmarks/openenv_server.py --client hgpo              only the project's client

Three clients play the same episodes, each with a separate server: a bare WebSocket; the project's environment
`openenv:URL`, whose open episodes are stepped one after another, as in a training; and OpenEnv's own client, if it is
installed. The commands are recorded from an expert beforehand, so choosing them takes no measured time. The server is a
separate process. Times are wall time, so run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgpo.envs import make
from hgpo.envs.wrappers import LimitedSuite

SPLIT = "train"
MOST_STEPS = 100
Play = Callable[[str, "Script"], Awaitable[None]]
CLIENTS = {"websocket": "a bare WebSocket", "hgpo": "as a training here plays", "openenv": "OpenEnv's own client"}


@dataclass(frozen=True)
class Script:
    """A task by its number, and the commands that are played in it."""

    task: int
    commands: tuple[str, ...]


def scripts(environment: str, episodes: int) -> list[Script]:
    """An expert's commands in each task, as many scripts as episodes; tasks repeat if there are too few."""
    suite = LimitedSuite(make(environment), MOST_STEPS)
    found = []
    for number, task in enumerate(suite.tasks(SPLIT)[:episodes]):
        played, expert = task.make(), suite.expert()
        assert expert is not None, f"{environment} has no expert"
        observation, info = played.reset(seed=0)
        expert.reset(observation, info)
        commands, ended = [], False
        while not ended:
            commands.append(expert.act(observation, info))
            observation, _, terminated, truncated, info = played.step(commands[-1])
            ended = terminated or truncated
        found.append(Script(number, tuple(commands)))
    return [found[number % len(found)] for number in range(episodes)]


def play_here(environment: str, played: Sequence[Script]) -> float:
    """Seconds in this process, one episode after another."""
    tasks = LimitedSuite(make(environment), MOST_STEPS).tasks(SPLIT)
    started = time.perf_counter()
    for script in played:
        here = tasks[script.task].make()
        here.reset(seed=0)
        for command in script.commands:
            here.step(command)
    return time.perf_counter() - started


@contextmanager
def server(environment: str, sessions: int) -> Iterator[tuple[str, int]]:
    """The address and process id of a server that runs inside the context."""
    words = ["serve-env", environment, "--split", SPLIT, "--port", "0"]
    words += ["--max-steps", str(MOST_STEPS), "--max-sessions", str(sessions)]
    process = subprocess.Popen([sys.executable, "-m", "hgpo", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http" not in line:
            raise SystemExit("the server did not start; what it said stands above")
        yield line.split(" at ")[1].split(": tasks")[0], process.pid
    finally:
        process.terminate()
        process.wait()


async def play_plain(address: str, script: Script) -> None:
    """One episode over a WebSocket."""
    from websockets.asyncio.client import connect

    async with connect(address.replace("http", "ws") + "/ws", compression=None, proxy=None) as socket:

        async def ask(kind: str, **data: Any) -> dict[str, Any]:
            await socket.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(await socket.recv())
            assert answer["type"] == "observation", answer
            told: dict[str, Any] = answer["data"]
            return told

        told = await ask("reset", split=SPLIT, task=script.task, seed=0)
        for command in script.commands:
            told = await ask("step", text=command)
        assert told["done"], script


async def play_openenv(address: str, script: Script) -> None:
    """One episode with OpenEnv's own client."""
    from openenv.core.generic_client import GenericEnvClient

    async with GenericEnvClient(base_url=address) as client:
        result = await client.reset(split=SPLIT, task=script.task, seed=0)
        for command in script.commands:
            result = await client.step({"text": command})
        assert result.done, script


async def play_at_once(address: str, played: Sequence[Script], at_once: int, play: Play) -> None:
    """All episodes at the server, `at_once` at a time."""
    free = asyncio.Semaphore(at_once)

    async def one(script: Script) -> None:
        async with free:
            await play(address, script)

    await asyncio.gather(*(one(script) for script in played))


def play_as_trained(address: str, played: Sequence[Script], at_once: int) -> None:
    """All episodes with the project's client, `at_once` open at a time, stepped one after another as in a training."""
    tasks = make(f"openenv:{address}").tasks(SPLIT)
    for first in range(0, len(played), at_once):
        scripts = played[first : first + at_once]
        environments = [tasks[script.task].make() for script in scripts]
        for environment in environments:
            environment.reset(seed=0)
        for step in range(max(len(script.commands) for script in scripts)):
            for script, environment in zip(scripts, environments, strict=True):
                if step < len(script.commands):
                    terminated, truncated = environment.step(script.commands[step])[2:4]
                    assert (terminated or truncated) == (step + 1 == len(script.commands)), (
                        "the expert's episode differs"
                    )


def play_served(client: str, address: str, played: Sequence[Script], at_once: int) -> float:
    """Seconds of all episodes at the server."""
    started = time.perf_counter()
    if client == "hgpo":
        play_as_trained(address, played, at_once)
    else:
        play = play_openenv if client == "openenv" else play_plain
        asyncio.run(play_at_once(address, played, at_once, play))
    return time.perf_counter() - started


def memory(process: int, key: str) -> float:
    """Resident memory of a process in MiB: "VmRSS" is the current size, "VmHWM" the peak."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main() -> None:
    """Play, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", default="textcraft", help="(default: textcraft)")
    parser.add_argument("--episodes", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--at-once", type=int, default=64, help="(default: 64)")
    parser.add_argument("--client", choices=CLIENTS, help="(default: all that are installed)")
    chosen = parser.parse_args()
    installed = [name for name in CLIENTS if name != "openenv" or importlib.util.find_spec(name)]
    played = scripts(chosen.environment, chosen.episodes)
    steps = sum(len(script.commands) for script in played)
    play_here(chosen.environment, played[: chosen.at_once])  # games are generated and read before time is taken
    here = play_here(chosen.environment, played)
    print(f"{chosen.episodes:,} episodes of {chosen.environment}, {steps:,} steps, {chosen.at_once} at a time")
    print(f"{'in the process':<33} {steps / here:8,.0f} steps/s")
    for client in [chosen.client] if chosen.client else installed:
        with server(chosen.environment, chosen.at_once) as (address, process):
            play_served(client, address, played[: chosen.at_once], chosen.at_once)
            before = memory(process, "VmRSS")
            there = play_served(client, address, played, chosen.at_once)
            most = memory(process, "VmHWM")
        print(
            f"served, {CLIENTS[client]:<25} {steps / there:8,.0f} steps/s, {there / here:5.1f} times as long; the "
            f"server {most:,.0f} MiB at most, {most - before:,.1f} more than after the first {chosen.at_once}"
        )


if __name__ == "__main__":
    main()
