"""Episodes whose environments run in other processes: a pool of environment workers, and the engine as a policy.

The pool belongs to the process and event loop that play the episodes. A worker that died, or ended itself since a step
took too long, is replaced; its episodes raise `EpisodeLost`. Does not import verl.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from multiprocessing import get_context
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from hgpo.envs.base import StepResult
from hgpo.integrations.verl import env_worker
from hgpo.messages import Conversation
from hgpo.policies.base import AsyncPolicy, Request, Response, TokenIds
from hgpo.policies.chat import PromptEncoder
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import play

logger = logging.getLogger(__name__)

_ARRAYS = ("prompt_ids", "token_ids", "log_probs")
Answer = TypeVar("Answer")


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


def plain_fields(record: StepRecord) -> dict[str, Any]:
    """The fields of a record without its arrays, which verl stores as tensors."""
    return {item.name: getattr(record, item.name) for item in fields(StepRecord) if item.name not in _ARRAYS}


def record_from(plain: Mapping[str, Any], prompt_ids: TokenIds, token_ids: TokenIds, log_probs: Any) -> StepRecord:
    """The inverse of `plain_fields`. `TypeError` for unknown and missing fields."""
    return StepRecord(**plain, prompt_ids=prompt_ids, token_ids=token_ids, log_probs=log_probs)


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
        return Response(text, prompt_ids, tokens, log_probs, finished, output.extra_fields)


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
    """

    name: str
    options: dict[str, Any]
    max_steps: int
    step_timeout: float


@dataclass(slots=True)
class _Worker:
    """An executor of one process, and the future of its suite, which is "" or the reason for a failure."""

    executor: ProcessPoolExecutor
    ready: Future[str]
    lost: bool = False


class EnvironmentPool:
    """Starts episodes on the least busy of `workers` processes; a process that died is replaced when it is needed."""

    def __init__(self, settings: WorkerSettings, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"a pool needs at least 1 worker, not {workers}")
        self._settings = settings
        self._workers: list[_Worker | None] = [None] * workers
        self._loads = [0] * workers
        self._slots = itertools.count()
        self.replaced = 0

    async def start(self, split: str, index: int, *, seed: int) -> RemoteEnvironment:
        """Start task `index` of `split`. `EpisodeLost` if its worker dies or exceeds the time-out."""
        place = min(range(len(self._workers)), key=lambda position: self._loads[position])
        self._loads[place] += 1
        try:
            worker = self._living(place)
            if reason := await self._answer(worker, worker.ready):
                worker.lost = True
                raise EpisodeLost(f"an environment worker did not start: {reason}")
            slot = next(self._slots)
            answer = await self.ask(worker, env_worker.start, slot, split, index, seed)
        except BaseException:
            self._loads[place] -= 1
            raise
        return RemoteEnvironment(self, worker, place, slot, answer["observation"], answer["info"])

    async def ask(self, worker: _Worker, function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
        """The answer of a function of `env_worker`. `EpisodeLost` for an error of the environment or a lost worker."""
        try:
            future = worker.executor.submit(function, *arguments)
        except RuntimeError as error:  # it is broken, or was closed
            raise self._lost(worker) from error
        answer = await self._answer(worker, future)
        if "error" in answer:
            raise EpisodeLost(f"the environment raised {answer['error']}")
        return answer

    def free(self, place: int) -> None:
        """An episode on this worker has ended."""
        self._loads[place] -= 1

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            if worker is not None:
                worker.executor.shutdown(wait=False, cancel_futures=True)

    def _living(self, place: int) -> _Worker:
        worker = self._workers[place]
        if worker is None or worker.lost:
            if worker is not None:
                self.replaced += 1
                logger.warning("environment worker %d is replaced", place)
                worker.executor.shutdown(wait=False, cancel_futures=True)
            executor, settings = ProcessPoolExecutor(1, mp_context=get_context("spawn")), self._settings
            arguments = (settings.name, settings.options, settings.max_steps, settings.step_timeout)
            worker = self._workers[place] = _Worker(executor, executor.submit(env_worker.prepare, *arguments))
        return worker

    async def _answer(self, worker: _Worker, future: Future[Answer]) -> Answer:
        try:
            return await asyncio.shield(asyncio.wrap_future(future))  # a cancelled caller must not cancel the others'
        except BrokenProcessPool as error:
            raise self._lost(worker) from error

    def _lost(self, worker: _Worker) -> EpisodeLost:
        worker.lost = True
        return EpisodeLost(
            f"its environment worker died, or took longer than verl.step_timeout = {self._settings.step_timeout:g} s; "
            "the log of the agent workers has more"
        )


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
            answer = await self._pool.ask(self._worker, env_worker.step, self._slot, command)
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
                await self._pool.ask(self._worker, env_worker.drop, self._slot)

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._pool.free(self._place)
