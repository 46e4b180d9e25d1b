from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corridor import CorridorSuite
from hgpo.envs.wrappers import LimitedSuite
from hgpo.integrations.verl.env_pool import EnvironmentPool, EpisodeLost
from hgpo.integrations.verl.env_worker import EnvironmentHost, WorkerSettings

Loops = Callable[[], asyncio.AbstractEventLoop]
TESTS = Path(__file__).parents[3]
MISBEHAVING = """
import os, subprocess, time
import numpy
from dataclasses import dataclass
from functools import partial
from hgpo.envs.base import Task

class Fickle:
    def state_key(self):
        return "calm"
    def reset(self, *, seed=None):
        print("an environment may print")
        return f"seed {seed}", {"won": False, "task": "behave"}
    def step(self, action):
        if action in ("die", "start a program and die"):
            if action != "die":
                subprocess.Popen(["sleep", "20"], start_new_session=True)
            os._exit(3)
        if action == "start a helper and die":
            helper = subprocess.Popen(["sleep", "60"])
            open(os.environ["HELPER"], "w").write(str(helper.pid))
            os._exit(3)
        if action == "fork" and not os.fork():
            time.sleep(20)  # with the parent's output open
            os._exit(0)
        if action in ("hang", "fork"):
            time.sleep(60)
        if action == "raise":
            raise KeyError("oops")
        if action == "numpy":
            info = {"won": numpy.bool_(True), "score": numpy.float32(0.5), "admissible_commands": ("on",), "task": "7"}
            return "seen", numpy.float32(1), numpy.bool_(False), False, info
        info = {"won": False, "score": float("inf") if action == "inf" else 0.0}
        if action == "schema":
            info["tools"] = [{"name": "set", "parameters": {"maximum": numpy.int64(3)}}]
        return "seen", float("nan") if action == "nan" else 1.0, False, False, info

class Slow(Fickle):
    def step(self, action):
        time.sleep(0.1)
        return super().step(action)

@dataclass(frozen=True)
class FickleSuite:
    splits: tuple = ("train", "held_out")
    def tasks(self, split):
        return [Task(f"{split}/{n}", "fickle", Fickle) for n in range(3)]

@dataclass(frozen=True)
class LateSuite(FickleSuite):
    def tasks(self, split):
        time.sleep(1.0)
        return super().tasks(split)

@dataclass(frozen=True)
class SlowSuite(FickleSuite):
    def tasks(self, split):
        return [Task(f"{split}/0", "slow", Slow)]
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    (tmp_path / "fickle.py").write_text(MISBEHAVING, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{TESTS}", prepend=os.pathsep)
    return WorkerSettings("fickle:FickleSuite", {}, max_steps=5, step_timeout=30.0)


@pytest.fixture(params=["asyncio", pytest.param("uvloop", marks=pytest.mark.slow)])
def loops(request: pytest.FixtureRequest) -> Loops:
    """What makes an event loop: Python's own, and Ray's, whose pipes have their own ways."""
    if request.param == "asyncio":
        return asyncio.new_event_loop
    return pytest.importorskip("uvloop", reason="uvloop comes with verl").new_event_loop


def run(test: Callable[[], Coroutine[Any, Any, None]], loops: Loops = asyncio.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(test(), 60))


def test_an_episode_is_played_as_in_this_process(settings: WorkerSettings) -> None:
    actions = ["go right", "go left", "open door", "go right", "open door"]
    here = LimitedSuite(CorridorSuite(), 8).tasks("train")[0].make()
    observation, info = here.reset(seed=5)
    expected = [(observation, {name: info[name] for name in ("task", "admissible_commands", "won")})]
    expected_steps = [here.step(action) for action in actions]

    async def test() -> None:
        pool = EnvironmentPool(WorkerSettings("corridor:CorridorSuite", {}, max_steps=8, step_timeout=30.0), 1)
        episode = await pool.start("train", 0, seed=5)
        assert [(episode.observation, episode.info)] == expected
        for action, step in zip(actions, expected_steps, strict=True):
            assert await episode.step(action) == (*step[:4], {**step[4]})
        await pool.close()

    run(test)


@pytest.mark.slow
def test_many_environments_share_few_processes(settings: WorkerSettings) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 2)
        episodes = await asyncio.gather(*[pool.start("train", n % 3, seed=n) for n in range(40)])
        assert [episode.observation for episode in episodes] == [f"seed {n}" for n in range(40)]
        assert pool._loads == [20, 20]
        results = await asyncio.gather(*[episode.step("on") for episode in episodes])
        assert all(result[0] == "seen" for result in results)
        for episode in episodes:
            await episode.close()
        assert pool._loads == [0, 0]
        await pool.close()

    run(test)


@pytest.mark.slow
def test_a_step_limit_cuts_the_episode(settings: WorkerSettings) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        episode = await pool.start("train", 0, seed=0)
        truncated = [(await episode.step("on"))[3] for _ in range(5)]
        assert truncated == [False, False, False, False, True]
        assert pool._loads == [0]
        await pool.close()

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [("die", "its process died"), ("hang", "took longer than 1 s"), ("fork", "took longer than 1 s")],
)
def test_a_worker_that_dies_or_hangs_is_replaced(
    settings: WorkerSettings, command: str, reason: str, loops: Loops
) -> None:
    async def test() -> None:
        pool = EnvironmentPool(replace(settings, step_timeout=1.0), 1)
        victim, neighbour = [await pool.start("train", 0, seed=n) for n in range(2)]
        with pytest.raises(EpisodeLost, match=reason):
            await victim.step(command)
        with pytest.raises(EpisodeLost, match=reason):
            await neighbour.step("on")
        fresh = await pool.start("train", 1, seed=9)
        assert (await fresh.step("on"))[0] == "seen"
        await fresh.close()
        assert pool._loads == [0]
        await pool.close()

    run(test, loops)


@pytest.mark.slow
def test_a_request_before_the_death_of_a_worker_is_noticed_is_lost(settings: WorkerSettings, loops: Loops) -> None:
    """Its input is closed, which the reader of its output has not seen yet."""

    async def test() -> None:
        pool = EnvironmentPool(replace(settings, step_timeout=1.0), 1)
        worker = await pool._worker(0)
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(EpisodeLost, match="is gone"):
            await pool.start("train", 0, seed=0)
        assert (await pool.start("train", 0, seed=3)).observation == "seed 3"
        await pool.close()

    run(test, loops)


@pytest.mark.slow
def test_a_worker_starts_where_the_fork_of_this_process_would_hang(settings: WorkerSettings, loops: Loops) -> None:
    """Libraries with threads, gRPC for one, register handlers that can block in the child of a fork."""
    script = f"""
import asyncio, ctypes
from hgpo.integrations.verl.env_pool import EnvironmentPool
from hgpo.integrations.verl.env_worker import WorkerSettings
from {loops.__module__} import new_event_loop

libc = ctypes.CDLL(None)
libc.__register_atfork(None, None, libc.pause, None)  # the child of a fork waits for ever

async def play():
    pool = EnvironmentPool(WorkerSettings("fickle:FickleSuite", {{}}, max_steps=5, step_timeout=30.0), 1)
    print((await pool.start("train", 0, seed=3)).observation)
    await pool.close()

with asyncio.Runner(loop_factory=new_event_loop) as runner:
    runner.run(asyncio.wait_for(play(), 20))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.communicate(timeout=40)[0] == "seed 3\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_while_a_program_of_its_environment_lives(
    settings: WorkerSettings, loops: Loops
) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        episode = await pool.start("train", 0, seed=0)
        with pytest.raises(EpisodeLost, match="its process died"):
            await asyncio.wait_for(episode.step("start a program and die"), 10)
        await pool.close()

    run(test, loops)


@pytest.mark.slow
def test_what_an_environment_started_ends_with_a_worker_that_dies(
    settings: WorkerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELPER", str(tmp_path / "helper"))

    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        episode = await pool.start("train", 0, seed=0)
        with pytest.raises(EpisodeLost, match=r"its process died \(exit status 3\)"):
            await episode.step("start a helper and die")
        await pool.close()

    run(test)
    state = Path("/proc", (tmp_path / "helper").read_text(), "stat")
    for _ in range(50):
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the program that the environment started still runs")


@pytest.mark.slow
def test_a_worker_killed_between_steps_is_noticed_and_replaced(settings: WorkerSettings, loops: Loops) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        episode = await pool.start("train", 0, seed=0)
        (await pool._worker(0)).process.kill()
        with pytest.raises(EpisodeLost, match="its process died"):
            await episode.step("on")
        assert (await pool.start("train", 0, seed=3)).observation == "seed 3"
        await pool.close()

    run(test, loops)


@pytest.mark.slow
def test_the_clock_of_a_step_runs_only_while_the_worker_is_at_it(settings: WorkerSettings) -> None:
    """Fifteen steps of 0.1 s wait for each other for 1.5 s, yet none takes longer than the time-out of 1 s."""

    async def test() -> None:
        pool = EnvironmentPool(WorkerSettings("fickle:SlowSuite", {}, max_steps=5, step_timeout=1.0), 1)
        episodes = await asyncio.gather(*[pool.start("train", 0, seed=n) for n in range(15)])
        began = time.monotonic()
        await asyncio.gather(*[episode.step("on") for episode in episodes])
        assert time.monotonic() - began >= 1.5
        await pool.close()

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("raise", "KeyError"),
        ("nan", "it returned the reward nan"),
        ("inf", "'score'"),
        ("schema", "int64 is not JSON serializable"),
    ],
)
def test_an_error_costs_one_episode_alone(settings: WorkerSettings, command: str, reason: str) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        victim, neighbour = [await pool.start("train", 0, seed=n) for n in range(2)]
        with pytest.raises(EpisodeLost, match=reason):
            await victim.step(command)
        assert (await neighbour.step("on"))[0] == "seen"
        await pool.close()

    run(test)


@pytest.mark.slow
def test_all_who_wait_for_a_worker_hear_that_it_cannot_start() -> None:
    async def test() -> None:
        pool = EnvironmentPool(WorkerSettings("no-such-environment", {}, max_steps=5, step_timeout=1.0), 1)
        starts = [pool.start("train", 0, seed=0) for _ in range(8)]
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert all(isinstance(answer, EpisodeLost) for answer in answers)
        assert re.search("did not start.*its process died.*exit status 1.*no-such-environment", str(answers[0]))
        assert pool._loads == [0]

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("printed", "reason"), [('"welcome"', "that is not JSON: b'welcome"), ("0", "that is no answer: '0'")]
)
def test_a_line_that_is_no_answer_is_shown(settings: WorkerSettings, tmp_path: Path, printed: str, reason: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"print({printed})")

    async def test() -> None:
        with pytest.raises(EpisodeLost, match=f"its output has a line {reason}"):
            await EnvironmentPool(settings, 1).start("train", 0, seed=0)

    run(test)


@pytest.mark.slow
def test_making_a_splits_tasks_takes_no_time_of_a_step(settings: WorkerSettings) -> None:
    async def test() -> None:
        limits = replace(settings, name="fickle:LateSuite", step_timeout=0.5, splits=("train",))
        pool = EnvironmentPool(limits, 1)
        assert (await pool.start("train", 0, seed=0)).observation == "seed 0"
        await pool.close()

    run(test)


@pytest.mark.slow
def test_numbers_and_commands_are_taken_as_the_built_in_rollout_takes_them(settings: WorkerSettings) -> None:
    async def test() -> None:
        pool = EnvironmentPool(settings, 1)
        episode = await pool.start("train", 0, seed=0)
        info = {"task": "7", "admissible_commands": ["on"], "won": True, "score": 0.5}
        assert await episode.step("numpy") == ("seen", 1.0, False, False, info)
        await pool.close()

    run(test)


@pytest.mark.slow
def test_a_worker_does_not_outlive_its_parent(settings: WorkerSettings) -> None:
    """Killed while an environment hangs, so that the worker does not read its input, where it would see the end."""
    requests = ['{"slot": 0, "start": ["train", 0, 0]}', '{"slot": 0, "step": "hang"}']
    parent = f"""
import subprocess, time
worker = subprocess.Popen({settings.command()!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
worker.stdout.readline()
worker.stdin.write({requests[0]!r} + "\\n" + {requests[1]!r} + "\\n")
worker.stdin.flush()
worker.stdout.readline()
print("hangs", flush=True)
time.sleep(60)
"""
    # Both hold the error output, which ends when the last of them does.
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"hangs\n"
    process.kill()
    process.communicate(timeout=15)


def test_the_exact_state_is_sent_only_if_it_is_asked_for(settings: WorkerSettings) -> None:
    async def test() -> None:
        for sends in (False, True):
            pool = EnvironmentPool(replace(settings, sends_state=sends), 1)
            episode = await pool.start("train", 0, seed=5)
            after = (await episode.step("on"))[4]
            assert [info.get("state_key") for info in (episode.info, after)] == [(sends and "calm") or None] * 2
            await pool.close()

    run(test)


def test_text_survives_whatever_it_holds() -> None:
    host = EnvironmentHost(LimitedSuite(CorridorSuite(), 8))
    answer = json.loads(host.answer({"slot": 1, "start": ["train", 0, 0]}))
    assert answer["observation"] == "you are at place 0"
    assert json.loads(host.answer({"slot": 2, "step": "look"}))["error"].startswith("KeyError")
