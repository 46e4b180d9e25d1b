"""Episodes whose environments run in other processes: a pool of environment workers, and the engine as a policy.

The pool belongs to the process and event loop that play the episodes. A worker that died, or whose oldest request
exceeds the time-out, is killed and replaced; its episodes raise `EpisodeLost` with the reason. Requests of many
episodes are written without waiting for answers, so that a turn of 64 environments costs one switch between processes.
Does not import verl.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np

from hgpo.envs.base import StepResult
from hgpo.messages import Conversation
from hgpo.policies.base import AsyncPolicy, Request, Response
from hgpo.policies.chat import PromptEncoder
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import play

logger = logging.getLogger(__name__)

_LONGEST_ANSWER = 2**26  # bytes in one line; far more than an observation takes
_START_UP_SECONDS = 600.0  # a suite may read or generate thousands of tasks first
_ENDING_SECONDS = 5.0  # a process that left the group may keep the output open


@dataclass(frozen=True, slots=True)
class Assignment:
    """An episode to play: its ids, and the task's split and index and the seed that fix its start."""

    ids: EpisodeIds
    split: str
    index: int
    seed: int


async def play_remotely(
    assignment: Assignment, pool: EnvironmentPool, policy: AsyncPolicy, rules: RolloutRules
) -> list[tuple[StepRecord, Response]]:
    """All steps of the episode, each with its response.

    Raises:
        EpisodeLost: the environment is gone, or the engine returns no token. The episode's earlier steps are dropped,
            since their returns depend on the later ones.
    """
    environment = await pool.start(assignment.split, assignment.index, seed=assignment.seed)
    try:
        episode = Episode(assignment.ids, rules, environment.observation, environment.info)
        return [turn async for turn in play(episode, environment.step, policy, rules)]
    finally:
        await environment.close()


class EnginePolicy:
    """verl's rollout engine as the policy of one episode.

    The engine samples with its own generator, seeded by verl's settings, and gets its weights from verl.
    """

    numbers_per_response = 0

    def __init__(
        self, server_manager: Any, encoder: PromptEncoder, sampling: Mapping[str, Any], max_response_tokens: int
    ) -> None:
        """`sampling` are verl's sampling parameters; each request replaces the temperature."""
        self._server_manager, self._encoder = server_manager, encoder
        self._sampling = {**sampling, "max_tokens": max_response_tokens}
        self._limit = max_response_tokens
        self._request_id = uuid4().hex  # one for all turns: the engine caches by it

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt, chat template included."""
        return self._encoder.max_prompt_tokens

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens of each prompt, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Does nothing: verl sends the weights."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The engine's response; `details` are the fields that verl needs back.

        Raises:
            EpisodeLost: the engine returned no token.
            PromptTooLong: the prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            RuntimeError: the numbers of log-probs and tokens differ.
        """
        [prompt_ids] = self._encoder.encode_fitting([request.prompt])
        output = await self._server_manager.generate(
            request_id=self._request_id,
            prompt_ids=prompt_ids.tolist(),
            sampling_params={**self._sampling, "temperature": temperature},
        )
        tokens = np.asarray(output.token_ids[: self._limit], dtype=np.int32)
        log_probs = np.asarray((output.log_probs or [])[: self._limit], dtype=np.float32)
        if not len(tokens):
            raise EpisodeLost("the engine returned no token")
        if log_probs.shape != tokens.shape:
            raise RuntimeError(f"the engine returned {len(log_probs)} log-probs for {len(tokens)} tokens")
        [text] = self._encoder.decode([tokens])
        finished = len(tokens) < self._limit or self._encoder.ends(tokens)
        thinks = self._encoder.opens_thought
        return Response(text, prompt_ids, tokens, log_probs, finished, output.extra_fields, in_thought=thinks)


class EpisodeLost(RuntimeError):
    """The environment of an episode is gone; the message has the reason."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The environment of a worker process.

    Attributes:
        name: of the environment.
        options: of the environment.
        max_steps: after which an episode is truncated.
        step_timeout: seconds that one step or start may take.
        sends_state: whether answers have the exact state, for `rollout.state = "simulator"`.
    """

    name: str
    options: dict[str, Any]
    max_steps: int
    step_timeout: float
    sends_state: bool = False

    def command(self) -> list[str]:
        """The command line of the process."""
        module = "hgpo.integrations.verl.env_worker"
        words = [self.name, json.dumps(self.options), str(self.max_steps), str(int(self.sends_state))]
        return [sys.executable, "-m", module, *words]


@dataclass(slots=True)
class _Request:
    number: int
    done: asyncio.Future[dict[str, Any]]


@dataclass(slots=True)
class _Worker:
    """One process, the streams to and from it, and its unanswered requests, oldest first."""

    process: subprocess.Popen[bytes]
    answers: asyncio.StreamReader
    requests: asyncio.StreamWriter
    waiting: deque[_Request] = field(default_factory=deque)
    lost: str = ""  # why the process is gone; empty while it runs
    reader: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    clock: asyncio.TimerHandle | None = None


class EnvironmentPool:
    """Starts episodes on the least busy of `workers` processes; each restarts when it is next needed."""

    def __init__(
        self, settings: WorkerSettings, workers: int, *, command: Callable[[WorkerSettings], list[str]] | None = None
    ) -> None:
        """`command` returns the command line of a worker; tests replace it."""
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
        """Start task `index` of `split`. `EpisodeLost` if its worker dies or exceeds the time-out."""
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
        """The worker in this place; concurrent calls wait for the same new one."""
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
        worker = await _start_process(self._command(self._settings))
        try:
            ready = await asyncio.wait_for(_read_line(worker.answers), _START_UP_SECONDS)
        except TimeoutError:
            await self._end(worker, f"not ready after {_START_UP_SECONDS:g} s")
            raise EpisodeLost(f"an environment worker was not ready after {_START_UP_SECONDS:g} s") from None
        except (ValueError, OSError) as error:
            await self._end(worker, f"it did not start: {error}")
            raise EpisodeLost(f"an environment worker did not start: {error}") from error
        if not ready.get("ready"):
            await self._end(worker, "it did not start")
            raise EpisodeLost(
                f"an environment worker did not start (exit status {worker.process.returncode}): "
                f"its own message is in the log. Environment {self._settings.name!r}, options {self._settings.options}"
            )
        worker.reader = asyncio.create_task(self._read(worker))
        self._workers[place] = worker
        return worker

    async def _read(self, worker: _Worker) -> None:
        """Pass answers to their requests, until the output ends or a line is no answer."""
        reason = "its process died"
        try:
            while answer := await _read_line(worker.answers):
                self._complete(worker, answer)
        except Exception as error:  # of any type: `_end` reports it to the waiting requests
            reason = str(error) or repr(error)
        await self._end(worker, reason)

    def _complete(self, worker: _Worker, answer: dict[str, Any]) -> None:
        """Complete the oldest request. `ValueError` for an answer to another one."""
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
        """Start the time-out of the oldest request; those of later ones start when they are the oldest."""
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
        await _write_line(worker.requests, {"number": number, **request})
        answer = await waiting.done
        if "error" in answer:
            raise EpisodeLost(f"the environment raised {answer['error']}")
        return answer

    async def _end(self, worker: _Worker, reason: str) -> None:
        worker.lost = worker.lost or reason
        if worker.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or (macOS) going
                os.killpg(worker.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(worker.process.wait, _ENDING_SECONDS)
        status = worker.process.returncode
        worker.requests.close()
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
    """One environment in a worker, made by `EnvironmentPool.start`; has the first observation and info."""

    def __init__(
        self, pool: EnvironmentPool, worker: _Worker, place: int, slot: int, observation: str, info: dict[str, Any]
    ) -> None:
        self.observation, self.info = observation, info
        self._pool, self._worker, self._place, self._slot = pool, worker, place, slot
        self._over = False

    async def step(self, command: str) -> StepResult:
        """One step. `EpisodeLost` if the worker died or exceeded the time-out, or the environment raised."""
        try:
            answer = await self._pool._ask(self._worker, {"slot": self._slot, "step": command})
        except BaseException:
            self._finish()
            raise
        if answer["terminated"] or answer["truncated"]:
            self._finish()
        return answer["observation"], answer["reward"], answer["terminated"], answer["truncated"], answer["info"]

    async def close(self) -> None:
        """Free the place, also before the end of the episode."""
        if not self._over:
            self._finish()
            if not self._worker.lost:
                await self._pool._ask(self._worker, {"slot": self._slot, "drop": True})

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._pool._loads[self._place] -= 1


async def _start_process(command: list[str]) -> _Worker:
    """Start a worker process, its input and output one socket.

    `Popen` instead of the event loop's own start of processes: uvloop, which Ray's workers run on, forks, and a process
    with threads of gRPC or OpenMP can deadlock between fork and exec, in handlers that these libraries registered.
    """
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as undo:
        undo.callback(ours.close)
        with theirs:
            # in a session of its own: processes that an environment forks end with the group
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), start_new_session=True)
        undo.callback(process.wait)
        undo.callback(process.kill)
        answers, requests = await asyncio.open_connection(sock=ours, limit=_LONGEST_ANSWER)
        undo.pop_all()
    return _Worker(process, answers, requests)


async def _write_line(requests: asyncio.StreamWriter, request: dict[str, Any]) -> None:
    """Send a request. Nothing is raised for a closed connection: the reader of the answers reports it."""
    if requests.is_closing():
        return
    requests.write((json.dumps(request) + "\n").encode())
    with contextlib.suppress(ConnectionError):
        await requests.drain()


async def _read_line(answers: asyncio.StreamReader) -> dict[str, Any]:
    """The next answer; empty at the end of the output. `ValueError` for a line that is no answer."""
    try:
        line = await answers.readline()
    except ValueError as error:
        raise ValueError(f"it wrote a line of more than {_LONGEST_ANSWER} bytes") from error
    except ConnectionError:  # it ended before it had read all requests
        return {}
    if not line.endswith(b"\n"):
        return {}
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not answer:
        raise ValueError(f"it wrote {line[:80]!r}, which is no answer")
    return answer
