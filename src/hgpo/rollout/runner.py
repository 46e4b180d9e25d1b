"""One step of an episode as people read it in a terminal. Everything in it is untrusted text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from hgpo.agents import AgentContext
from hgpo.envs.base import Env, Expert, StepResult, Task
from hgpo.policies.base import AnyPolicy, AsyncPolicy, BatchPolicy, Response, draw_requests, is_async
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import RolloutRules, fit_prompts
from hgpo.rollout.records import StepRecord
from hgpo.utils.text import visible_lines

MOST_SHOWN = 2_000
"""Characters of one text; a response may be endless."""


def step_text(step: Mapping[str, Any], *, whole_prompt: bool = False) -> str:
    """What was asked, answered, done and seen.

    Args:
        step: columns of a stored step, or the fields of a `StepRecord`; what is missing is left out.
        whole_prompt: show all of the prompt in place of its length.
    """
    prompt = str(step.get("prompt") or "")
    parts = [f"── step {step['step'] + 1} " + "─" * 50]
    if whole_prompt:
        parts.append(_indented("asked", prompt, most=len(prompt)))
    elif prompt:
        parts.append(f"asked     {len(prompt):,} characters (--prompts shows them)")
    parts.append(_indented("answer", step.get("response")))
    fault = f"   [ill-formed: {step['fault']}]" if step.get("fault") else ""
    parts.append(_indented("action", f"{step.get('action')}{fault}"))
    parts.append(_indented("seen", step.get("next_observation")))
    parts.append(f"reward    {step['reward']:g}{_end(step)}")
    return "\n".join(part for part in parts if part)


def _end(step: Mapping[str, Any]) -> str:
    if step.get("won"):
        return ", won"
    if step.get("terminated"):
        return ", over"
    return ", cut at the step limit" if step.get("truncated") else ""


def _indented(name: str, text: Any, most: int = MOST_SHOWN) -> str:
    """A text beside its name; empty where there is none."""
    shown = visible_lines(str(text or "")).strip()
    if not shown:
        return ""
    if len(shown) > most:
        shown = f"{shown[:most]}… ({len(shown):,} characters)"
    return f"{name:<10}" + shown.replace("\n", "\n" + " " * 10)


# One episode beside a policy that answers in its own time: it goes on as soon as its own answer is there.


async def play(
    episode: Episode,
    step: Callable[[str], Awaitable[StepResult]],
    policy: AsyncPolicy,
    rules: RolloutRules,
    rng: np.random.Generator | None = None,
) -> AsyncIterator[tuple[StepRecord, Response]]:
    """Play `episode` to its end, and yield each step with the response it was made of.

    Args:
        episode: at its start.
        step: carries one action out.
        policy: answers.
        rules: the episode's.
        rng: the episode's own, so that nothing depends on which episode is answered first; None for a policy that
            draws by itself.
    """
    while not episode.ended:
        [prompt] = fit_prompts([episode.context()], policy, rules.template.render)
        [request] = draw_requests([prompt.text], policy, rng, temperature=rules.temperature)
        response = await policy.respond(request, temperature=rules.temperature)
        answer = episode.answer(prompt, response)
        yield episode.finish(answer, await step(answer.action.action)), response


# Plays episodes, many environments side by side, with a policy of either form.
#
# With a policy that answers batches, every turn is one model call for all live episodes; an environment that has
# ended
# costs nothing more. With one that answers each request in its own time, no episode waits for another.


Result = TypeVar("Result")
OnProgress = Callable[[int, int], None]
"""Told after every turn how many episodes have ended, and of how many."""
OnStep = Callable[[StepRecord], None]
"""Told of every step as soon as it is done."""


@dataclass(frozen=True, slots=True)
class _Live:
    """An episode and the environment it is played in."""

    episode: Episode
    environment: Env


@dataclass(frozen=True, slots=True)
class _Told:
    """Who is told what, if anybody is."""

    on_progress: OnProgress | None
    on_step: OnStep | None

    def step(self, record: StepRecord) -> StepRecord:
        if self.on_step is not None:
            self.on_step(record)
        return record

    def progress(self, ended: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(ended, total)


def collect(
    tasks: Sequence[Task],
    policy: AnyPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    *,
    group_size: int = 1,
    label: str = "",
    on_progress: OnProgress | None = None,
    on_step: OnStep | None = None,
) -> list[StepRecord]:
    """Play every task `group_size` times from the same start, to the end.

    Args:
        tasks: what is played; those of a `LimitedSuite`, which checks the environment contract.
        policy: answers, in either form.
        rules: see `RolloutRules`.
        rng: all randomness comes from it; a group's environments are reset with one common seed.
        group_size: trajectories a task.
        label: put before group names, which keeps them unique across updates.
        on_progress: see `OnProgress`.
        on_step: see `OnStep`.

    Raises:
        EnvContractError: an environment breaks its contract.
    """
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, not {group_size}")
    live = _start(tasks, rules, rng, group_size, label)
    told = _Told(on_progress, on_step)
    if is_async(policy):
        return _run(_collect_apart(live, policy, rules, rng, told))
    return _collect_in_turns(live, cast(BatchPolicy, policy), rules, rng, told)


def _start(
    tasks: Sequence[Task], rules: RolloutRules, rng: np.random.Generator, group_size: int, label: str
) -> list[_Live]:
    started = []
    for position, task in enumerate(tasks):  # the position keeps apart two draws of one task
        seed = int(rng.integers(2**31))
        group = f"{label}{position}/{task.id}"
        for member in range(group_size):
            environment = task.make()
            ids = EpisodeIds(group, f"{group}#{member}", task.id, task.kind)
            started.append(_Live(Episode(ids, rules, *environment.reset(seed=seed)), environment))
    return started


def _collect_in_turns(
    live: list[_Live],
    policy: BatchPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    told: _Told,
) -> list[StepRecord]:
    """One batch of requests a turn, of the live episodes alone."""
    total = len(live)
    steps: list[StepRecord] = []
    while live:
        prompts = fit_prompts([one.episode.context() for one in live], policy, rules.template.render)
        requests = draw_requests([prompt.text for prompt in prompts], policy, rng, temperature=rules.temperature)
        responses = policy.generate(requests, temperature=rules.temperature)
        for one, prompt, response in zip(live, prompts, responses, strict=True):
            answer = one.episode.answer(prompt, response)
            steps.append(told.step(one.episode.finish(answer, one.environment.step(answer.action.action))))
        live = [one for one in live if not one.episode.ended]
        told.progress(total - len(live), total)
    return steps


async def _collect_apart(
    live: list[_Live],
    policy: AsyncPolicy,
    rules: RolloutRules,
    rng: np.random.Generator,
    told: _Told,
) -> list[StepRecord]:
    """Every episode by itself, with a generator of its own: which answer comes first changes nothing."""
    ended = 0

    async def play_one(one: _Live, own: np.random.Generator) -> list[StepRecord]:
        nonlocal ended

        async def step(action: str) -> StepResult:
            return one.environment.step(action)

        records = [told.step(record) async for record, _ in play(one.episode, step, policy, rules, own)]
        ended += 1
        told.progress(ended, len(live))
        return records

    seeds = rng.integers(2**63, size=len(live))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(play_one(one, np.random.default_rng(int(seed))))
                for one, seed in zip(live, seeds, strict=True)
            ]
    except ExceptionGroup as failed:  # the others were cancelled; the first says what is wrong
        raise failed.exceptions[0] from failed
    return [record for task in tasks for record in task.result()]


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """The coroutine's result, also where this thread runs an event loop already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


# Noisy expert demonstrations: what the agent would have been told at each step, and what was done.


def demonstrate(
    tasks: Sequence[Task], expert: Expert, rules: RolloutRules, rng: np.random.Generator, *, noise: float
) -> list[tuple[AgentContext, str]]:
    """Play each task once; every step gives one pair of context and command.

    With probability `noise` a random admissible command is carried out, and shown, instead of the expert's: the
    imitator meets states off the expert's path, and what it learns leaves room to improve.

    Raises:
        EnvContractError: an environment or the expert breaks its contract.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"noise must lie in 0 to 1, not {noise}")
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
