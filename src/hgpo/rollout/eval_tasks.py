"""Plays the episodes of an evaluation set: each with its own random numbers, and failures isolated per task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hgpo.agents import Agent
from hgpo.envs.base import StepResult, Task
from hgpo.envs.env_checker import EnvContractError
from hgpo.messages import without_thoughts
from hgpo.policies.base import AnswerFailed, AsyncPolicy, ContextFull, RequestUsage, Response, draw_requests
from hgpo.policies.wrappers import OverBudget, usage_of
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import PromptBatcher, RolloutError, RolloutRules, fit_prompts
from hgpo.rollout.records import EpisodeSummary, StepCounts, StepRecord, TotalUsage
from hgpo.rollout.runner import OnStep, gather, play

MAX_LESSON_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task of an evaluation set, to be played with one seed.

    Attributes:
        task: the task to play.
        place: index of the task in its split.
        seed: the evaluation's seed.
    """

    task: Task
    place: int
    seed: int

    @property
    def id(self) -> str:
        """The id, which is also the group of its steps."""
        return eval_task_id(self.seed, self.task.id)


def eval_task_id(seed: int, task: str) -> str:
    """The id of a task played with a seed. Example: `eval_task_id(123, "valid_unseen/3") == "123/valid_unseen/3"`."""
    return f"{seed}/{task}"


def evaluation_randomness(seed: int, place: int) -> tuple[int, np.random.Generator]:
    """Reset seed and generator of an evaluation's episode, independent of other episodes and their order.

    Args:
        seed: the evaluation's seed, below 2^32; numpy splits a larger one into two, which can equal a smaller one's.
        place: index of the task in its split.

    Returns:
        The seed for the environment's `reset`, the same in every trial, and the generator of the policy's draws.
    """
    rng = np.random.default_rng((seed, place))
    return int(rng.integers(2**31)), rng


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """A task that was played.

    Attributes:
        summary: result and usage.
        steps: of all trials, in order.
        error: why it failed, or was lost with a full context; None if it was played to the end.
    """

    summary: EpisodeSummary
    steps: list[StepRecord]
    error: Exception | None = None


@dataclass(slots=True)
class _Trials:
    """The trials of a task so far."""

    won: list[bool] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    usage: list[RequestUsage] = field(default_factory=list)


@dataclass(frozen=True)
class Player:
    """The policy, agent and rules of evaluation episodes.

    Attributes:
        policy: answers the prompts.
        agent: makes the prompts, and limits the trials of a task.
        rules: the rules of every episode.
        max_concurrency: most concurrent episodes, and so most concurrent requests.
        on_step: see `OnStep`.
    """

    policy: AsyncPolicy
    agent: Agent
    rules: RolloutRules
    max_concurrency: int = 1
    on_step: OnStep = lambda step: None

    @cached_property
    def prompts(self) -> PromptBatcher:
        """Makes the prompts of all episodes."""
        return PromptBatcher(self.policy, self.rules.template.render)


async def play_tasks(tasks: Sequence[EvalTask], player: Player, on_result: Callable[[EpisodeResult], None]) -> bool:
    """Play every task. Failures are isolated per task.

    Args:
        tasks: the tasks to play.
        player: see `Player`.
        on_result: receives each result as soon as the task has ended; an exception from it ends everything.

    Returns:
        Whether all were played; False if the cost limit was reached before. Unfinished tasks are then passed to
        `on_result` as failed, since their requests cost money.

    Raises:
        ServerRefused: the server answers no request; other errors that concern all tasks are raised, too.
    """
    free = asyncio.Semaphore(player.max_concurrency)
    over_budget = asyncio.Event()

    async def play_one(task: EvalTask) -> None:
        async with free:
            if over_budget.is_set():
                return
            result = await play_task(task, player)
            if isinstance(result.error, OverBudget):
                over_budget.set()
            on_result(result)

    await gather([play_one(task) for task in tasks])
    return not over_budget.is_set()


async def play_task(task: EvalTask, player: Player) -> EpisodeResult:
    """Play one task until it is won, at most `player.agent.trials` times.

    A request without an answer, an environment that breaks its contract, and the cost limit end the task as failed.
    A full context ends it, as lost unless it was won before: it is the model's limit and affects long episodes only.

    Raises:
        ServerRefused: see `play_tasks`.
    """
    reset_seed, rng = evaluation_randomness(task.seed, task.place)
    trials = _Trials()
    began = time.perf_counter()
    failure: Exception | None = None
    try:
        while len(trials.won) < player.agent.trials and not any(trials.won):
            await _play_trial(task, player, reset_seed, rng, trials)
    except (AnswerFailed, ContextFull, EnvContractError, RolloutError, OverBudget) as error:
        failure = error
        if isinstance(error, AnswerFailed) and error.usage is not None:
            trials.usage.append(error.usage)
    reason = f"{type(failure).__name__}: {failure}" if failure else ""
    full = isinstance(failure, ContextFull)
    summary = EpisodeSummary(
        task=task.task.id,
        kind=task.task.kind,
        seed=task.seed,
        trials=tuple(trials.won),
        score=trials.steps[-1].score if trials.steps else 0.0,
        counts=StepCounts.of(trials.steps),
        usage=_total_usage(trials.usage),
        seconds=time.perf_counter() - began,
        failure="" if full else reason,
        context_full=reason if full else "",
    )
    try:
        return EpisodeResult(summary, trials.steps, failure)
    finally:
        # The traceback refers to this frame: the cycle would keep the environment, such as a server's session.
        del failure


async def _play_trial(
    task: EvalTask, player: Player, reset_seed: int, rng: np.random.Generator, trials: _Trials
) -> None:
    """One trial; if it is lost and another follows, also the lesson from it of an agent that reflects."""
    environment = task.task.make()
    ids = EpisodeIds(task.id, f"{task.id}#{len(trials.won)}", task.task.id, task.task.kind)
    episode = Episode(ids, player.rules, *environment.reset(seed=reset_seed), lessons=tuple(trials.lessons))

    async def step(action: str) -> StepResult:
        return environment.step(action)

    def count(response: Response) -> None:
        trials.usage.append(usage_of(response))

    trials.won.append(False)
    async for record, _ in play(episode, step, player.policy, player.rules, rng, player.prompts, count):
        trials.won[-1] = record.won
        trials.steps.append(record)
        player.on_step(record)
    if player.agent.reflect is not None and not trials.won[-1] and len(trials.won) < player.agent.trials:
        trials.lessons.append(await _lesson(episode, player, rng, trials))


async def _lesson(episode: Episode, player: Player, rng: np.random.Generator, trials: _Trials) -> str:
    """The agent's reflection on a lost trial."""
    assert player.agent.reflect is not None, "only agents that reflect have lessons"
    [prompt] = fit_prompts([episode.context()], player.policy, player.agent.reflect)
    temperature = player.rules.temperature
    [request] = draw_requests([prompt.text], player.policy, rng, temperature=temperature)
    response = await player.policy.respond(request, temperature=temperature)
    trials.usage.append(usage_of(response))
    return " ".join(without_thoughts(response.with_opening).split())[:MAX_LESSON_CHARACTERS]


def _total_usage(usage: Sequence[RequestUsage]) -> TotalUsage:
    return TotalUsage(
        prompt_tokens=sum(one.prompt_tokens for one in usage),
        response_tokens=sum(one.response_tokens for one in usage),
        requests=sum(one.requests for one in usage),
        latencies=tuple(one.seconds for one in usage if one.seconds),
        cost=sum(one.cost for one in usage),
        estimated=sum(one.estimated for one in usage),
        parameters=dict(usage[-1].parameters) if usage else {},
    )
