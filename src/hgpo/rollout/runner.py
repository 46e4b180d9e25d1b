"""Plays episodes: groups for training, episodes of an evaluation set, and expert demonstrations.

With a policy that answers batches, `collect` makes one model call a turn for all live episodes. With an async policy,
and in evaluations always, each episode continues as soon as its own response is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from hgpo.agents import Agent, AgentContext
from hgpo.envs.base import Env, Expert, StepResult, Task
from hgpo.envs.env_checker import EnvContractError
from hgpo.messages import without_thoughts
from hgpo.policies.base import (
    AnyPolicy,
    AsyncPolicy,
    BatchPolicy,
    ContextFull,
    RequestUsage,
    Response,
    draw_requests,
    is_async,
)
from hgpo.policies.openai import AnswerFailed
from hgpo.policies.wrappers import OverBudget, usage_of
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import PromptBatcher, RolloutError, RolloutRules, fit_prompts
from hgpo.rollout.records import EpisodeSummary, StepCounts, StepRecord, TotalUsage

MAX_LESSON_CHARACTERS = 1_000
Result = TypeVar("Result")
OnProgress = Callable[[int, int], None]
"""Receives the number of ended episodes and that of all, after every turn or episode."""
OnStep = Callable[[StepRecord], None]
"""Receives every step as soon as it is done."""


async def play(
    episode: Episode,
    step: Callable[[str], Awaitable[StepResult]],
    policy: AsyncPolicy,
    rules: RolloutRules,
    rng: np.random.Generator | None = None,
    prompts: PromptBatcher | None = None,
) -> AsyncIterator[tuple[StepRecord, Response]]:
    """Play `episode` to its end, and yield each step with its response.

    Args:
        episode: at its start.
        step: carries out one action.
        policy: answers.
        rules: the episode's.
        rng: the episode's own, so that results do not depend on the order of responses; None for a policy that draws
            its own random numbers.
        prompts: makes the prompts, one for all concurrent episodes; None: one for this episode.
    """
    batcher = prompts or PromptBatcher(policy, rules.template.render)
    while not episode.ended:
        prompt = await batcher.fit(episode.context())
        [request] = draw_requests([prompt.text], policy, rng, temperature=rules.temperature)
        response = await policy.respond(request, temperature=rules.temperature)
        answer = episode.answer(prompt, response)
        yield episode.finish(answer, await step(answer.action.action)), response


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """The coroutine's result, even if this thread already runs an event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _gather(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All results, in order; the first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


# Groups of episodes for training.


@dataclass(frozen=True, slots=True)
class LiveEpisode:
    """An episode, at its start or later, and the environment it is played in."""

    episode: Episode
    environment: Env


def collect(
    tasks: Sequence[Task],
    policy: AnyPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    *,
    group_size: int = 1,
    label: str = "",
    on_progress: OnProgress = lambda ended, total: None,
    on_step: OnStep = lambda step: None,
) -> list[StepRecord]:
    """Play every task `group_size` times from the same start, to the end.

    Args:
        tasks: tasks of a `LimitedSuite`, which checks the environment contract.
        policy: a batch policy or an asynchronous policy.
        rules: see `RolloutRules`.
        rng: all randomness comes from it; a group's environments are reset with one common seed.
        group_size: trajectories per task.
        label: prefix of group names, which keeps them unique across updates.
        on_progress: see `OnProgress`.
        on_step: see `OnStep`.

    Raises:
        EnvContractError: an environment breaks its contract.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size}")
    live = _start(tasks, rules, rng, group_size, label)
    return play_to_end(live, policy, rules, rng, on_progress=on_progress, on_step=on_step)


def play_to_end(
    live: list[LiveEpisode],
    policy: AnyPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    *,
    on_progress: OnProgress = lambda ended, total: None,
    on_step: OnStep = lambda step: None,
) -> list[StepRecord]:
    """Play episodes from where they are to their ends; the arguments are those of `collect`."""
    if is_async(policy):
        return run_async(_collect_async(live, policy, rules, rng, on_progress, on_step))
    return _collect_in_turns(live, cast(BatchPolicy, policy), rules, rng, on_progress, on_step)


def _start(
    tasks: Sequence[Task], rules: RolloutRules, rng: np.random.Generator, group_size: int, label: str
) -> list[LiveEpisode]:
    started = []
    for position, task in enumerate(tasks):  # the position distinguishes two draws of one task
        seed = int(rng.integers(2**31))
        group = f"{label}{position}/{task.id}"
        for member in range(group_size):
            environment = task.make()
            ids = EpisodeIds(group, f"{group}#{member}", task.id, task.kind)
            started.append(LiveEpisode(Episode(ids, rules, *environment.reset(seed=seed)), environment))
    return started


def _collect_in_turns(
    live: list[LiveEpisode],
    policy: BatchPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    on_progress: OnProgress,
    on_step: OnStep,
) -> list[StepRecord]:
    """One batch of requests per turn, from the unfinished episodes."""
    total = len(live)
    steps: list[StepRecord] = []
    while live:
        prompts = fit_prompts([one.episode.context() for one in live], policy, rules.template.render)
        requests = draw_requests([prompt.text for prompt in prompts], policy, rng, temperature=rules.temperature)
        responses = policy.generate(requests, temperature=rules.temperature)
        for one, prompt, response in zip(live, prompts, responses, strict=True):
            answer = one.episode.answer(prompt, response)
            steps.append(one.episode.finish(answer, one.environment.step(answer.action.action)))
            on_step(steps[-1])
        live = [one for one in live if not one.episode.ended]
        on_progress(total - len(live), total)
    return steps


async def _collect_async(
    live: list[LiveEpisode],
    policy: AsyncPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    on_progress: OnProgress,
    on_step: OnStep,
) -> list[StepRecord]:
    """Each episode has its own generator, so the order of responses does not affect results."""
    ended, prompts = 0, PromptBatcher(policy, rules.template.render)

    async def play_one(one: LiveEpisode, own: np.random.Generator) -> list[StepRecord]:
        nonlocal ended

        async def step(action: str) -> StepResult:
            return one.environment.step(action)

        records = []
        async for record, _ in play(one.episode, step, policy, rules, own, prompts):
            records.append(record)
            on_step(record)
        ended += 1
        on_progress(ended, len(live))
        return records

    seeds = rng.integers(2**63, size=len(live))
    played = await _gather(
        [play_one(one, np.random.default_rng(int(seed))) for one, seed in zip(live, seeds, strict=True)]
    )
    return [record for records in played for record in records]


# Episodes of an evaluation set.


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One task of an evaluation set, to be played with one seed.

    Attributes:
        task: what is played.
        place: index of the task in its split.
        seed: of the evaluation.
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
        seed: of the evaluation.
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
        policy: answers.
        agent: makes the prompts, and limits the trials of a task.
        rules: of every episode.
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
        tasks: what is played.
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

    await _gather([play_one(task) for task in tasks])
    return not over_budget.is_set()


async def play_task(task: EvalTask, player: Player) -> EpisodeResult:
    """Play one task until it is won, at most `player.agent.trials` times.

    A request without an answer, an environment that breaks its contract, and the cost limit end the task as failed.
    A full context ends it as lost: it is the model's limit and affects long episodes only.

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
    reason = f"{type(failure).__name__}: {failure}" if failure else ""
    full = isinstance(failure, ContextFull)
    if full and not trials.won:
        trials.won.append(False)
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
    return EpisodeResult(summary, trials.steps, failure)


async def _play_trial(
    task: EvalTask, player: Player, reset_seed: int, rng: np.random.Generator, trials: _Trials
) -> None:
    """One trial; if it is lost and another follows, also the agent's lesson from it."""
    environment = task.task.make()
    ids = EpisodeIds(task.id, f"{task.id}#{len(trials.won)}", task.task.id, task.task.kind)
    episode = Episode(ids, player.rules, *environment.reset(seed=reset_seed), lessons=tuple(trials.lessons))

    async def step(action: str) -> StepResult:
        return environment.step(action)

    async for record, response in play(episode, step, player.policy, player.rules, rng, player.prompts):
        trials.steps.append(record)
        player.on_step(record)
        trials.usage.append(usage_of(response))
    trials.won.append(trials.steps[-1].won)
    if not trials.won[-1] and len(trials.won) < player.agent.trials:
        trials.lessons.append(await _lesson(episode, player, rng, trials))


async def _lesson(episode: Episode, player: Player, rng: np.random.Generator, trials: _Trials) -> str:
    """The agent's reflection on a lost trial."""
    assert player.agent.reflect is not None, "an agent with several trials reflects"
    [prompt] = fit_prompts([episode.context()], player.policy, player.agent.reflect)
    temperature = player.rules.temperature
    [request] = draw_requests([prompt.text], player.policy, rng, temperature=temperature)
    response = await player.policy.respond(request, temperature=temperature)
    trials.usage.append(usage_of(response))
    return " ".join(without_thoughts(response.text).split())[:MAX_LESSON_CHARACTERS]


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


# Expert demonstrations.


def demonstrate(
    tasks: Sequence[Task], expert: Expert, rules: RolloutRules, rng: np.random.Generator, *, noise: float
) -> list[tuple[AgentContext, str]]:
    """Play each task once; every step yields one (context, command) pair.

    With probability `noise` a random admissible command replaces the expert's: the demonstrations then contain states
    off the expert's path, and the imitating policy stays below 100 % success.

    Raises:
        EnvContractError: an environment or the expert breaks its contract.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"noise must be from 0 to 1, not {noise}")
    pairs: list[tuple[AgentContext, str]] = []
    for task in tasks:
        pairs += _demonstrate_one(task, expert, rules, rng, noise)
    return pairs


def _demonstrate_one(
    task: Task, expert: Expert, rules: RolloutRules, rng: np.random.Generator, noise: float
) -> list[tuple[AgentContext, str]]:
    environment = task.make()
    ids = EpisodeIds(task.id, f"{task.id}#expert", task.id, task.kind)
    episode = Episode(ids, rules, *environment.reset(seed=int(rng.integers(2**31))))
    expert.reset(episode.observation, episode.info)
    pairs: list[tuple[AgentContext, str]] = []
    while not episode.ended:
        context = episode.context()
        command = expert.act(episode.observation, episode.info)
        if context.admissible and rng.random() < noise:
            command = context.admissible[int(rng.integers(len(context.admissible)))]
        pairs.append((context, command))
        episode.advance(command, environment.step(command))
    return pairs
