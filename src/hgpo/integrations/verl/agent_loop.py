"""The agent of one episode inside verl's agent workers: one training sample per step, each with its own prompt.

Needs verl. Environment workers belong to the agent worker's process and event loop, and are shared by its episodes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from hgpo.integrations.verl.compose import recipe_of
from hgpo.integrations.verl.environments import EnvironmentPool, EpisodeLost, WorkerSettings
from hgpo.integrations.verl.episodes import Assignment, plain_fields, play_remotely
from hgpo.integrations.verl.mapping import AGENT_LOOP
from hgpo.integrations.verl.policy import EnginePolicy
from hgpo.policies.base import Response
from hgpo.policies.encoding import PromptEncoder
from hgpo.rollout.episode import EpisodeIds
from hgpo.rollout.records import StepRecord
from hgpo.runs.assemble import chat_of, rollout_rules

logger = logging.getLogger(__name__)
RECORD_KEY = "hgpo"


class _Shared:
    """What all episodes of an agent worker's process share."""

    def __init__(self, verl_config: Any, tokenizer: Any) -> None:
        self.config, _ = recipe_of(verl_config)
        self.rules = rollout_rules(self.config)
        self.encoder = PromptEncoder(tokenizer, self.config.policy.max_prompt_tokens, chat_of(self.config))
        environment, verl = self.config.environment, self.config.verl
        settings = WorkerSettings(environment.name, environment.options, environment.max_steps, verl.step_timeout)
        self.pool = EnvironmentPool(settings, verl.environment_workers)


@register(AGENT_LOOP)
class StepwiseAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode to its end and returns its steps; none at all if the episode was lost, which is logged."""

    shared: ClassVar[_Shared | None] = None

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # Not the base class's: it prepares for conversations that grow by tokens, which needs a tokenizer of a family
        # it knows. Here every step has a prompt of its own.
        self.config, self.server_manager, self.tokenizer = trainer_config.config, server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """`row` is a `TaskRow` with verl's `uid` and `session_id`."""
        if StepwiseAgentLoop.shared is None:
            StepwiseAgentLoop.shared = _Shared(self.config, self.tokenizer)
        shared = StepwiseAgentLoop.shared
        limit = shared.config.policy.max_response_tokens
        policy = EnginePolicy(self.server_manager, shared.encoder, sampling_params, limit)
        rules = replace(shared.rules, temperature=float(sampling_params["temperature"]))  # validation has its own
        assignment = _assignment(row)
        try:
            turns = await play_remotely(assignment, shared.pool, policy, rules)
        except EpisodeLost as error:
            logger.error("trajectory %s is left out of the update: %s", assignment.ids.trajectory, error)
            return []
        return _outputs(turns)


def _assignment(row: dict[str, Any]) -> Assignment:
    trajectory = f"{row['group']}#{row['session_id']}"
    ids = EpisodeIds(row["group"], trajectory, row["task_id"], row["task_type"])
    return Assignment(ids, row["split"], int(row["task_index"]), int(row["seed"]))


def _outputs(turns: list[tuple[StepRecord, Response]]) -> list[AgentLoopOutput]:
    """One sample per step, as verl takes them."""
    total = sum(record.reward for record, _ in turns)
    last = turns[-1][0]
    return [
        AgentLoopOutput(
            prompt_ids=record.prompt_ids.tolist(),
            response_ids=record.token_ids.tolist(),
            response_mask=[1] * len(record.token_ids),
            response_logprobs=record.log_probs.tolist(),
            reward_score=total,  # for verl's own figures; training takes the rewards of the records
            num_turns=2,
            metrics={},
            extra_fields={
                **response.details,
                RECORD_KEY: plain_fields(record),
                "reward_extra_info": {"won": float(last.won), "score": last.score},
            },
        )
        for record, response in turns
    ]
