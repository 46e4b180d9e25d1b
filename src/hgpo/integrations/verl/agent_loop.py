"""The agent of one episode inside verl's agent workers: one training sample per step, each with its own prompt.

Needs verl. Environment workers belong to the agent worker's process and event loop, and are shared by its episodes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from hgpo.envs.contract import EnvironmentFault
from hgpo.integrations.verl.compose import recipe_of
from hgpo.integrations.verl.environments import EnvironmentPool, EpisodeLost, WorkerSettings
from hgpo.integrations.verl.episode_client import EpisodeClient
from hgpo.integrations.verl.episodes import Assignment, plain_fields, play_remotely
from hgpo.integrations.verl.mapping import AGENT_LOOP
from hgpo.integrations.verl.policy import EnginePolicy
from hgpo.policies.base import Response
from hgpo.policies.encoding import PromptEncoder
from hgpo.rollout.episode import EpisodeIds
from hgpo.rollout.records import StepRecord
from hgpo.rollout.rules import RolloutError
from hgpo.runs.assemble import chat_of, rollout_rules

logger = logging.getLogger(__name__)
RECORD_KEY = "hgpo"
FAILURE_KEY = "hgpo_failure"


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
    """Plays an episode to its end and returns its steps; none at all if the episode was lost, which is logged.

    Any other error ends the run, as it does in the built-in trainer: a prompt that is too long even without memory, for
    example. verl would leave the group out and go on, so the error travels to the trainer as a row (`batches`).
    """

    shared: ClassVar[_Shared | None] = None

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # Not the base class's: it prepares for conversations that grow by tokens, which needs a tokenizer of a family
        # it knows. Here every step has a prompt of its own.
        self.config, self.server_manager, self.tokenizer = trainer_config.config, server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """`row` is a `TaskRow` with verl's `uid` and `session_id`."""
        try:
            return _outputs(await self._play(sampling_params, row))
        except EpisodeLost as error:
            logger.error("trajectory %s is left out of the update: %s", _assignment(row).ids.trajectory, error)
            return []
        except Exception as error:
            logger.exception("trajectory %s ends the run", _assignment(row).ids.trajectory)
            return [_failure(error)]

    async def _play(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> list[tuple[StepRecord, Response]]:
        if StepwiseAgentLoop.shared is None:
            StepwiseAgentLoop.shared = _Shared(self.config, self.tokenizer)
        shared = StepwiseAgentLoop.shared
        limit = shared.config.policy.max_response_tokens
        client = EpisodeClient(self.server_manager)
        policy = EnginePolicy(client, shared.encoder, sampling_params, limit)
        rules = replace(shared.rules, temperature=float(sampling_params["temperature"]))  # validation has its own
        try:
            return await play_remotely(_assignment(row), shared.pool, policy, rules)
        finally:
            client.leave()


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


def _failure(error: Exception) -> AgentLoopOutput:
    """A row without a step that says why the run has to end."""
    expected = isinstance(error, EnvironmentFault | RolloutError)
    said = str(error) if expected else f"{type(error).__name__}: {error}"
    return AgentLoopOutput(
        prompt_ids=[0],
        response_ids=[0],
        response_mask=[1],
        response_logprobs=[0.0],
        reward_score=0.0,
        num_turns=2,
        metrics={},
        extra_fields={FAILURE_KEY: said, "reward_extra_info": {"won": 0.0, "score": 0.0}},
    )
