"""One episode in a remote environment, and its steps on their way through verl's queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hgpo.integrations.verl.environments import EnvironmentPool
from hgpo.policies.base import AsyncPolicy, Response
from hgpo.policies.padding import TokenIds
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.play import play
from hgpo.rollout.records import StepRecord
from hgpo.rollout.rules import RolloutRules

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
