"""Episodes whose environments run in other processes: the pool of environment workers, and verl's engine as a policy.

The pool belongs to the process and event loop that play the episodes. A worker that dies, or whose oldest request
exceeds the time-out, is killed and replaced, and its episodes raise `EpisodeLost` with the reason. Requests of many
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
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from hgpo.envs.base import StepResult
from hgpo.integrations.verl.env_worker import READY, WorkerSettings
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
_ENDING_SECONDS = 5.0  # a killed process that waits for a disk does not end


async def play_remotely(
    ids: EpisodeIds, environment: RemoteEnvironment, policy: AsyncPolicy, rules: RolloutRules
) -> list[tuple[StepRecord, Response]]:
    """Play an environment to the end of its episode, and close it. Returns all steps, each with its response.

    Raises:
        EpisodeLost: the environment is gone, or the engine returns no token. The episode's earlier steps are dropped,
            since their returns depend on the later ones.
    """
    try:
        episode = Episode(ids, rules, environment.observation, environment.info)
        return [turn async for turn in play(episode, environment.step, policy, rules)]
    finally:
        await environment.close()


class VerlPolicy:
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
    """An episode cannot continue; the message has the reason."""


class EnvironmentPool:
    """Starts episodes on the least busy of `workers` processes. A lost process is replaced when it is next needed."""

    def __init__(self, settings: WorkerSettings, workers: int) -> None:
        self._settings = settings
        self._workers: list[asyncio.Task[_Worker] | None] = [None] * workers
        self._loads = [0] * workers  # running episodes
        self._slots = itertools.count()

    async def start(self, split: str, index: int, *, seed: int) -> RemoteEnvironment:
        """Start task `index` of `split`. `EpisodeLost` if its worker dies or exceeds the time-out."""
        place = min(range(len(self._workers)), key=lambda position: self._loads[position])
        self._loads[place] += 1
        try:
            worker, slot = await self._worker(place), next(self._slots)
            answer = await worker.ask({"slot": slot, "start": [split, index, seed]})
        except BaseException:
            self._free(place)
            raise
        return RemoteEnvironment(worker, slot, answer, partial(self._free, place))

    def _free(self, place: int) -> None:
        self._loads[place] -= 1

    async def close(self) -> None:
        """End all processes."""
        for task in self._workers:
            if task is not None and task.done() and not task.exception():
                await task.result().end("the pool was closed")

    async def _worker(self, place: int) -> _Worker:
        """The worker in this place; concurrent calls wait for the same new one."""
        task = self._workers[place]
        if task is not None and task.done() and not task.exception() and (lost := task.result().lost):
            logger.warning("environment worker %d is replaced: %s", place, lost)
            task = None
        if task is None or (task.done() and task.exception()):
            task = self._workers[place] = asyncio.create_task(_start_worker(self._settings))
        return await asyncio.shield(task)


class RemoteEnvironment:
    """One environment in a worker, started by `EnvironmentPool.start`; it has the first `observation` and `info`."""

    def __init__(self, worker: _Worker, slot: int, first: Mapping[str, Any], free: Callable[[], None]) -> None:
        """`first` is the worker's answer to the start; `free` is called once, when the episode is over."""
        self.observation, self.info = first["observation"], first["info"]
        self._worker, self._slot, self._free, self._over = worker, slot, free, False

    async def step(self, command: str) -> StepResult:
        """One step. `EpisodeLost` if the worker died or exceeded the time-out, or the environment raised."""
        try:
            answer = await self._worker.ask({"slot": self._slot, "step": command})
        except BaseException:
            self._finish()
            raise
        if answer["terminated"] or answer["truncated"]:
            self._finish()
        return answer["observation"], answer["reward"], answer["terminated"], answer["truncated"], answer["info"]

    async def close(self) -> None:
        """Delete the environment, also before the end of its episode."""
        if not self._over:
            self._finish()
            if not self._worker.lost:
                await self._worker.ask({"slot": self._slot, "drop": True})

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._free()


class _Worker:
    """A worker process, and its unanswered requests.

    `lost` says why the process is gone, and is empty while it runs; `ready` is set when it has built its suite.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        answers: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
        step_timeout: float,
    ) -> None:
        self.process, self.lost = process, ""
        self._answers, self._requests, self._step_timeout = answers, requests, step_timeout
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting = deque([self.ready])  # oldest first
        self._clock: asyncio.TimerHandle | None = None
        self._reader = asyncio.create_task(self._read())

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request. `EpisodeLost` if the worker is gone or the environment raised."""
        if self.lost:
            raise EpisodeLost(f"its environment worker is gone: {self.lost}")
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            self._set_clock()
        if not self._requests.is_closing():  # `_read` reports a closed connection
            self._requests.write((json.dumps(request) + "\n").encode())
            with contextlib.suppress(ConnectionError):
                await self._requests.drain()
        answer = await waiting
        if "error" in answer:
            raise EpisodeLost(f"the environment raised {answer['error']}")
        return answer

    async def end(self, reason: str) -> None:
        """End the process; its waiting requests raise `EpisodeLost`."""
        if not self._reader.done():  # else the process is gone, and another may have its number
            self._kill(reason)
        await self._reader

    async def _read(self) -> None:
        """Pass answers to their requests, which they follow in order, until the process ends."""
        try:
            while (line := await self._answers.readline()).endswith(b"\n"):
                answer, waiting = json.loads(line), self._waiting.popleft()
                self._set_clock()
                if not waiting.done():
                    waiting.set_result(answer)
        except ConnectionError:  # the process ended before it had read all requests
            pass
        except (json.JSONDecodeError, UnicodeDecodeError):  # e.g. a line that Python's start-up files print
            self._kill(f"its output has a line that is not JSON: {line[:80]!r}")
        except ValueError:
            self._kill(f"an answer has more than {_LONGEST_ANSWER} bytes")
        self.lost = self.lost or "its process died"
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, _ENDING_SECONDS)
        self._kill(self.lost)
        gone = f"its environment worker is gone: {self.lost} (exit status {self.process.returncode})"
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(EpisodeLost(gone))

    def _set_clock(self) -> None:
        """Start the time-out of the oldest request; those of later ones start when they are the oldest."""
        if self._clock is not None:
            self._clock.cancel()
        self._clock = None
        if self._waiting:
            reason = f"an environment took longer than {self._step_timeout:g} s"
            self._clock = asyncio.get_running_loop().call_later(self._step_timeout, self._kill, reason)

    def _kill(self, reason: str) -> None:
        """Kill the process and those that it forked, and close the connection, so that `_read` ends."""
        self.lost = self.lost or reason
        if self._clock is not None:
            self._clock.cancel()
        # Also if the process has ended: those that it forked may live.
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or (macOS) going
            os.killpg(self.process.pid, signal.SIGKILL)
        self._requests.transport.abort()


async def _start_worker(settings: WorkerSettings) -> _Worker:
    """Start a worker process and wait until it has built its suite. `EpisodeLost` if it does not."""
    worker = _Worker(*await _start_process(settings.command()), settings.step_timeout)
    try:
        first = await asyncio.wait_for(worker.ready, _START_UP_SECONDS)
        if first != READY:  # e.g. a number that a start-up file prints; all later answers would be off by one
            await worker.end(f"its output has a line that is no answer: {str(first)[:80]!r}")
            raise EpisodeLost(worker.lost)
    except (TimeoutError, EpisodeLost) as error:
        await worker.end(f"not ready after {_START_UP_SECONDS:g} s")
        raise EpisodeLost(
            f"an environment worker did not start ({worker.lost}; exit status {worker.process.returncode}): its own "
            f"message is in the log. Environment {settings.name!r}, options {settings.options}"
        ) from error
    return worker


async def _start_process(
    command: list[str],
) -> tuple[subprocess.Popen[bytes], asyncio.StreamReader, asyncio.StreamWriter]:
    """Start a process whose input and output are one socket; return the process and the streams from and to it.

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
    return process, answers, requests
