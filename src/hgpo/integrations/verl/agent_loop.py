"""The agent of one episode inside verl's agent workers: one training sample per step, each with its own prompt.

Needs verl. Environment workers belong to the agent worker's process and event loop, and are shared by its episodes.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from hgpo.integrations.verl.compose import recipe_of
from hgpo.integrations.verl.environments import EnvironmentPool, EpisodeLost, WorkerSettings
from hgpo.integrations.verl.episodes import Answer, Assignment, plain_fields, play
from hgpo.integrations.verl.mapping import AGENT_LOOP
from hgpo.policies.encoding import PromptEncoder
from hgpo.policies.padding import TokenIds
from hgpo.runs.assemble import rollout_rules

logger = logging.getLogger(__name__)
RECORD_KEY = "hgpo"


class _Bench:
    """What all episodes of this process share."""

    def __init__(self, verl_config: Any, tokenizer: Any) -> None:
        self.config, _ = recipe_of(verl_config)
        self.rules = rollout_rules(self.config)
        self.encoder = PromptEncoder(tokenizer, self.config.policy.max_prompt_tokens)
        environment, verl = self.config.environment, self.config.verl
        settings = WorkerSettings(environment.name, environment.options, environment.max_steps, verl.step_timeout)
        self.pool = EnvironmentPool(settings, verl.environment_workers)


_bench: _Bench | None = None


@register(AGENT_LOOP)
class StepwiseAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode to its end and returns its steps; none at all if the episode was lost, which is logged."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any) -> None:
        # Not the base class's: it prepares for conversations that grow by tokens, which needs a tokenizer of a family
        # it knows. Here every step has a prompt of its own.
        self.config, self.server_manager, self.tokenizer = trainer_config.config, server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """`row` is a `TaskRow` with verl's `uid` and `session_id`."""
        global _bench
        if _bench is None:
            _bench = _Bench(self.config, self.tokenizer)
        bench = _bench
        assignment = Assignment(
            group=row["group"],
            trajectory=f"{row['group']}#{row['session_id']}",
            task_id=row["task_id"],
            task_type=row["task_type"],
            split=row["split"],
            index=int(row["task_index"]),
            seed=int(row["seed"]),
        )
        limit = bench.config.policy.max_response_tokens
        request = uuid4().hex  # one for all turns: the engine keeps an episode where its prefix is cached

        async def generate(prompt_ids: TokenIds) -> Answer:
            output = await self.server_manager.generate(
                request_id=request,
                prompt_ids=prompt_ids.tolist(),
                sampling_params={**sampling_params, "max_tokens": limit},
            )
            tokens = np.asarray(output.token_ids[:limit], dtype=np.int32)
            log_probs = np.asarray((output.log_probs or [])[:limit], dtype=np.float32)
            if log_probs.shape != tokens.shape:
                raise RuntimeError(f"the engine gave {len(log_probs)} log-probs for {len(tokens)} tokens")
            return Answer(tokens, log_probs, output.extra_fields)

        try:
            records, answers = await play(
                assignment, bench.pool, generate, bench.encoder, bench.rules, max_response_tokens=limit
            )
        except EpisodeLost as error:
            logger.error("trajectory %s is left out of the update: %s", assignment.trajectory, error)
            return []
        total = sum(record.reward for record in records)
        won, score = records[-1].won, records[-1].score
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
                    **answer.details,
                    RECORD_KEY: plain_fields(record),
                    "reward_extra_info": {"won": float(won), "score": score},
                },
            )
            for record, answer in zip(records, answers, strict=True)
        ]
