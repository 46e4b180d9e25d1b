"""One episode beside a policy that answers in its own time: it goes on as soon as its own answer is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import numpy as np

from hgpo.envs.base import StepResult
from hgpo.policies.base import AsyncPolicy, Response, draw_requests
from hgpo.rollout.episode import Episode
from hgpo.rollout.prompts import fit_prompts
from hgpo.rollout.records import StepRecord
from hgpo.rollout.rules import RolloutRules


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
        [prompt] = fit_prompts([episode.situation()], policy, rules.template.render)
        [request] = draw_requests([prompt.text], policy, rng, temperature=rules.temperature)
        response = await policy.respond(request, temperature=rules.temperature)
        answer = episode.answer(prompt, response)
        yield episode.finish(answer, await step(answer.action.action)), response
