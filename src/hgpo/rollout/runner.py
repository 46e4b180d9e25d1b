"""Plays episodes: groups for training, and expert demonstrations.

With a policy that answers batches, `collect` makes one model call a turn for all live episodes. With an async policy,
each episode continues as soon as its own response is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from hgpo.agents import AgentContext
from hgpo.envs.base import Env, Expert, StepResult, Task
from hgpo.policies.base import (
    AnyPolicy,
    AsyncPolicy,
    BatchPolicy,
    Response,
    draw_requests,
    is_async,
)
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import PromptBatcher, RolloutRules, fit_prompts
from hgpo.rollout.records import StepRecord

Result = TypeVar("Result")
OnProgress = Callable[[int, int], None]
"""Receives the number of ended episodes and the number of all episodes, after every turn or episode."""
OnStep = Callable[[StepRecord], None]
"""Receives every step as soon as it is done."""


async def play(
    episode: Episode,
    step: Callable[[str], Awaitable[StepResult]],
    policy: AsyncPolicy,
    rules: RolloutRules,
    rng: np.random.Generator | None = None,
    prompts: PromptBatcher | None = None,
    on_response: Callable[[Response], object] = lambda response: None,
) -> AsyncIterator[tuple[StepRecord, Response]]:
    """Play `episode` to its end, and yield each step with its response.

    Args:
        episode: at its start.
        step: carries out one action.
        policy: answers the prompts.
        rules: the rules of the episode.
        rng: the episode's own, so that results do not depend on the order of responses; None for a policy that draws
            its own random numbers.
        prompts: makes the prompts of all concurrent episodes; None: the episode gets its own `PromptBatcher`.
        on_response: receives each response before its action is carried out, which may fail.
    """
    batcher = prompts or PromptBatcher(policy, rules.template.render)
    while not episode.ended:
        prompt = await batcher(episode.context())
        [request] = draw_requests([prompt.text], policy, rng, temperature=rules.temperature)
        response = await policy.respond(request, temperature=rules.temperature)
        on_response(response)
        answer = episode.answer(prompt, response)
        yield episode.finish(answer, await step(answer.action.action)), response


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine and return its result, even if this thread already runs an event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def gather(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
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
        on_progress, on_step: see `OnProgress` and `OnStep`.

    Raises:
        EnvContractError: an environment breaks its contract.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size}")
    live = []
    for position, task in enumerate(tasks):  # the position distinguishes two draws of one task
        seed = int(rng.integers(2**31))
        group = f"{label}{position}/{task.id}"
        for member in range(group_size):
            environment = task.make()
            ids = EpisodeIds(group, f"{group}#{member}", task.id, task.kind)
            live.append(LiveEpisode(Episode(ids, rules, *environment.reset(seed=seed)), environment))
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
        return run_async(_play_async(live, policy, rules, rng, on_progress, on_step))
    batch_policy, total = cast(BatchPolicy, policy), len(live)
    steps: list[StepRecord] = []
    while live:  # one batch of requests per turn, from the unfinished episodes
        prompts = fit_prompts([one.episode.context() for one in live], batch_policy, rules.template.render)
        requests = draw_requests([prompt.text for prompt in prompts], batch_policy, rng, temperature=rules.temperature)
        responses = batch_policy.generate(requests, temperature=rules.temperature)
        for one, prompt, response in zip(live, prompts, responses, strict=True):
            answer = one.episode.answer(prompt, response)
            steps.append(one.episode.finish(answer, one.environment.step(answer.action.action)))
            on_step(steps[-1])
        live = [one for one in live if not one.episode.ended]
        on_progress(total - len(live), total)
    return steps


async def _play_async(
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
    played = await gather(
        [play_one(one, np.random.default_rng(int(seed))) for one, seed in zip(live, seeds, strict=True)]
    )
    return [record for records in played for record in records]


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
        environment = task.make()
        ids = EpisodeIds(task.id, f"{task.id}#expert", task.id, task.kind)
        episode = Episode(ids, rules, *environment.reset(seed=int(rng.integers(2**31))))
        expert.reset(episode.observation, episode.info)
        while not episode.ended:
            context = episode.context()
            command = expert.act(episode.observation, episode.info)
            if context.admissible and rng.random() < noise:
                command = context.admissible[int(rng.integers(len(context.admissible)))]
            pairs.append((context, command))
            episode.advance(command, environment.step(command))
    return pairs
