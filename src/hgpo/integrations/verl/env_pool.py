"""One rollout server for a whole episode. Needs verl.

verl's client asks the load balancer before every request and tells it after every answer: two calls between processes
beside the one that matters. An episode's turns go to one server anyway, where its prefixes are cached, so it is
enough to ask before its first turn and to tell after its last. What the balancer counts are then the live episodes of
each server, waiting for their environments or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient

from hgpo.envs.base import StepResult
from hgpo.policies.base import AsyncPolicy, Response
from hgpo.policies.padding import TokenIds
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import play


class EpisodeClient(LLMServerClient):  # type: ignore[misc]
    """verl's client, for one episode; `leave` when it is over.

    Args:
        client: the one that all episodes of this process share; it knows the load balancer.
    """

    def __init__(self, client: LLMServerClient) -> None:
        super().__init__(client.config, client._load_balancer)
        self._client = client
        self._server: tuple[str, Any] | None = None
        self._episode: str | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self._server is None:
            self._server = await self._client._acquire_server(request_id, **extra)
            self._episode = request_id
        return self._server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Not after every answer."""

    def leave(self) -> None:
        """Tell the load balancer that no more requests come."""
        if self._server is not None:
            self._client._release_server(self._server[0], request_id=self._episode)
            self._server = None


# One episode in a remote environment, and its steps on their way through verl's queue.


_ARRAYS = ("prompt_ids", "token_ids", "log_probs")


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which episode is to be played, and from which start.

    Example: `Assignment(EpisodeIds("3/17/train/17", "3/17/train/17#5", "train/17", "pick_two_obj_and_place"),
    split="train", index=17, seed=812)`.
    """

    ids: EpisodeIds
    split: str
    index: int
    seed: int


async def play_remotely(
    assignment: Assignment, pool: EnvironmentPool, policy: AsyncPolicy, rules: RolloutRules
) -> list[tuple[StepRecord, Response]]:
    """All steps of the episode, each with the response it was made of.

    Raises:
        EpisodeLost: the environment is gone, or the engine answers nothing; no step of such an episode is of use, since
            the return of every step depends on those after it.
    """
    environment = await pool.start(assignment.split, assignment.index, seed=assignment.seed)
    try:
        episode = Episode(assignment.ids, rules, environment.observation, environment.info)
        return [turn async for turn in play(episode, environment.step, policy, rules)]
    finally:
        await environment.close()


def plain_fields(record: StepRecord) -> dict[str, Any]:
    """Everything of a record but its arrays, which an engine stores as tensors of its own."""
    return {item.name: getattr(record, item.name) for item in fields(StepRecord) if item.name not in _ARRAYS}


def record_from(plain: Mapping[str, Any], prompt_ids: TokenIds, token_ids: TokenIds, log_probs: Any) -> StepRecord:
    """The inverse of `plain_fields`. Unknown and missing fields are a `TypeError`."""
    return StepRecord(**plain, prompt_ids=prompt_ids, token_ids=token_ids, log_probs=log_probs)


# A pool of environment workers: many environments per process, a time-out per step, replacement of what died.
#
# The pool lives in the process that plays the episodes and belongs to its event loop. A worker that died, or that
# kept
# one request longer than the time-out, is killed and replaced; the episodes it held are lost, and each finds out by
# `EpisodeLost`, which says why. Requests of many episodes are written one after another without waiting for answers,
# so a turn of 64 environments costs one switch between processes, not 64.


logger = logging.getLogger(__name__)

_LONGEST_ANSWER = 2**26  # bytes in one line; far more than an observation takes
_START_UP_SECONDS = 600.0  # a suite may read or generate thousands of tasks first
_ENDING_SECONDS = 5.0  # something that left the worker's process group may still hold its output open


class EpisodeLost(RuntimeError):
    """The environment of an episode is gone; the message says what became of it."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker process is started with.

    Example: `WorkerSettings("alfworld", {"size": "small"}, max_steps=50, step_timeout=60.0)`.
    """

    name: str
    options: dict[str, Any]
    max_steps: int
    step_timeout: float

    def command(self) -> list[str]:
        """The command line of the process."""
        module = "hgpo.integrations.verl.env_worker"
        return [sys.executable, "-m", module, self.name, json.dumps(self.options), str(self.max_steps)]


@dataclass(slots=True)
class _Request:
    number: int
    done: asyncio.Future[dict[str, Any]]


@dataclass(slots=True)
class _Worker:
    """One process and the requests it has not answered yet, oldest first."""

    process: asyncio.subprocess.Process
    waiting: deque[_Request] = field(default_factory=deque)
    lost: str = ""  # why it is gone; empty while it lives
    reader: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    clock: asyncio.TimerHandle | None = None


class EnvironmentPool:
    """Starts episodes on the least busy of `workers` processes.

    Example::

        pool = EnvironmentPool(WorkerSettings("alfworld", {}, max_steps=50, step_timeout=60.0), workers=2)
        environment = await pool.start("train", 17, seed=3)
        observation, reward, terminated, truncated, info = await environment.step("look")
    """

    def __init__(
        self, settings: WorkerSettings, workers: int, *, command: Callable[[WorkerSettings], list[str]] | None = None
    ) -> None:
        """`command` gives the command line of a worker, for tests with workers that misbehave."""
        if workers < 1:
            raise ValueError(f"a pool needs at least 1 worker, not {workers}")
        self._settings = settings
        self._command = command or WorkerSettings.command
        self._workers: list[_Worker | None] = [None] * workers
        self._spawning: dict[int, asyncio.Task[_Worker]] = {}
        self._loads = [0] * workers
        self._numbers = itertools.count()
        self._slots = itertools.count()
        self.replaced = 0

    async def start(self, split: str, index: int, *, seed: int) -> RemoteEnvironment:
        """Begin task number `index` of `split`. `EpisodeLost` if its worker dies or is silent meanwhile."""
        place = min(range(len(self._workers)), key=lambda position: self._loads[position])
        self._loads[place] += 1
        try:
            worker = await self._living(place)
            slot = next(self._slots)
            answer = await self._ask(worker, {"slot": slot, "start": [split, index, seed]})
        except BaseException:
            self._loads[place] -= 1
            raise
        return RemoteEnvironment(self, worker, place, slot, answer["observation"], answer["info"])

    async def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            if worker is not None:
                await self._end(worker, "the pool was closed")

    async def _living(self, place: int) -> _Worker:
        """The worker in this place, a new one if there is none; all who ask meanwhile wait for the same one."""
        worker = self._workers[place]
        if worker is not None and not worker.lost:
            return worker
        spawning = self._spawning.get(place)
        if spawning is None:
            if worker is not None:
                self.replaced += 1
                logger.warning("environment worker %d is replaced: %s", place, worker.lost)
            spawning = self._spawning[place] = asyncio.create_task(self._spawn(place))
            spawning.add_done_callback(lambda _: self._spawning.pop(place))
        return await asyncio.shield(spawning)

    async def _spawn(self, place: int) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            *self._command(self._settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_ANSWER,
            start_new_session=True,  # what an environment forks is of the worker's group, and ends with it
        )
        worker = _Worker(process)
        try:
            ready = await asyncio.wait_for(_read_line(process), _START_UP_SECONDS)
        except TimeoutError:
            await self._end(worker, f"not ready after {_START_UP_SECONDS:g} s")
            raise EpisodeLost(f"an environment worker was not ready after {_START_UP_SECONDS:g} s") from None
        except (ValueError, OSError) as error:
            await self._end(worker, f"it did not start: {error}")
            raise EpisodeLost(f"an environment worker did not start: {error}") from error
        if not ready.get("ready"):
            await self._end(worker, "it did not start")
            raise EpisodeLost(
                f"an environment worker did not start (exit status {process.returncode}): "
                f"its own message is in the log. Environment {self._settings.name!r}, options {self._settings.options}"
            )
        worker.reader = asyncio.create_task(self._read(worker))
        self._workers[place] = worker
        return worker

    async def _read(self, worker: _Worker) -> None:
        """Hand answers to those who wait for them, until there are no more or one cannot be understood."""
        reason = "its process died"
        try:
            while answer := await _read_line(worker.process):
                self._hand_over(worker, answer)
        except Exception as error:  # whatever it is, those who wait for this worker must hear of it
            reason = str(error) or repr(error)
        await self._end(worker, reason)

    def _hand_over(self, worker: _Worker, answer: dict[str, Any]) -> None:
        """Give the oldest request its answer. `ValueError` for an answer to anything else."""
        number = answer.get("number")
        if not worker.waiting:
            raise ValueError(f"it answered request {number} when none was due")
        if number != worker.waiting[0].number:
            raise ValueError(f"it answered request {number} when {worker.waiting[0].number} was due")
        request = worker.waiting.popleft()
        self._set_clock(worker)
        if not request.done.done():
            request.done.set_result(answer)

    def _set_clock(self, worker: _Worker) -> None:
        """Start the time-out of the oldest request; the clock of the others starts when they are the oldest."""
        if worker.clock is not None:
            worker.clock.cancel()
        worker.clock = None
        if worker.waiting:
            worker.clock = asyncio.get_running_loop().call_later(self._settings.step_timeout, self._expire, worker)

    def _expire(self, worker: _Worker) -> None:
        worker.lost = f"an environment took longer than {self._settings.step_timeout:g} s"
        worker.ending = asyncio.get_running_loop().create_task(self._end(worker, worker.lost))

    async def _ask(self, worker: _Worker, request: dict[str, Any]) -> dict[str, Any]:
        if worker.lost:
            raise EpisodeLost(f"its environment worker is gone: {worker.lost}")
        number = next(self._numbers)
        waiting = _Request(number, asyncio.get_running_loop().create_future())
        worker.waiting.append(waiting)
        if len(worker.waiting) == 1:
            self._set_clock(worker)
        await _write_line(worker.process, {"number": number, **request})
        answer = await waiting.done
        if "error" in answer:
            raise EpisodeLost(f"the environment raised {answer['error']}")
        return answer

    async def _end(self, worker: _Worker, reason: str) -> None:
        worker.lost = worker.lost or reason
        if worker.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or (macOS) going
                os.killpg(worker.process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(worker.process.wait(), _ENDING_SECONDS)
        status = worker.process.returncode
        if worker.reader is not None and worker.reader is not asyncio.current_task():
            worker.reader.cancel()
        if worker.clock is not None:
            worker.clock.cancel()
        gone = f"its environment worker is gone: {worker.lost} (exit status {status})"
        while worker.waiting:
            request = worker.waiting.popleft()
            if not request.done.done():
                request.done.set_exception(EpisodeLost(gone))


class RemoteEnvironment:
    """One environment in a worker, at its start; `EnvironmentPool.start` makes them."""

    def __init__(
        self, pool: EnvironmentPool, worker: _Worker, place: int, slot: int, observation: str, info: dict[str, Any]
    ) -> None:
        self.observation, self.info = observation, info
        self._pool, self._worker, self._place, self._slot = pool, worker, place, slot
        self._over = False

    async def step(self, command: str) -> StepResult:
        """One step. `EpisodeLost` if the worker died or was silent for too long, or the environment raised."""
        try:
            answer = await self._pool._ask(self._worker, {"slot": self._slot, "step": command})
        except BaseException:
            self._finish()
            raise
        if answer["terminated"] or answer["truncated"]:
            self._finish()
        return answer["observation"], answer["reward"], answer["terminated"], answer["truncated"], answer["info"]

    async def close(self) -> None:
        """Give the place back before the end of the episode."""
        if not self._over:
            self._finish()
            if not self._worker.lost:
                await self._pool._ask(self._worker, {"slot": self._slot, "drop": True})

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._pool._loads[self._place] -= 1


async def _write_line(process: asyncio.subprocess.Process, request: dict[str, Any]) -> None:
    """Send a request, unless nobody reads any more: the reader of the answers finds that out, and says so."""
    assert process.stdin is not None
    if process.stdin.is_closing():  # uvloop, which Ray's workers run on, raises RuntimeError for a write from here on
        return
    process.stdin.write((json.dumps(request) + "\n").encode())
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()


async def _read_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """The next answer; empty at the end of the output. `ValueError` for a line that is no answer."""
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
    except ValueError as error:
        raise ValueError(f"it wrote a line of more than {_LONGEST_ANSWER} bytes") from error
    if not line.endswith(b"\n"):
        return {}
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not answer:
        raise ValueError(f"it wrote {line[:80]!r}, which is no answer")
    return answer
