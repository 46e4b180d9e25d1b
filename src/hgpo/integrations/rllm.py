"""rLLM: step advantages that its trainer takes as they are. Read in rLLM 0.3.0.pre (commit 9beb6e0).

With `rllm.algorithm.use_precomputed_advantage=true` the trainer takes what stands in `step.advantage`. The hook that
groups trajectories is the first place where all attempts at a task are together:

    UnifiedTrainer(..., traj_grouping_hook=grouping(StepAdvantages("hgpo")))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hgpo.integrations.attempts import StepAdvantages, Turn, turns_of_conversation, with_final_reward


def grouping(estimate: StepAdvantages, group: Callable[..., list[Any]] | None = None) -> Callable[..., list[Any]]:
    """A function for `traj_grouping_hook`: groups as rLLM does, and writes the advantage of every step.

    Args:
        estimate: The estimator.
        group: What groups; None: rLLM's own.
    """
    if group is None:
        from rllm.trainer.algorithms.transform import _default_traj_grouping_hook

        group = _default_traj_grouping_hook
    grouped: Callable[..., list[Any]] = group

    def group_and_estimate(*arguments: Any, **options: Any) -> list[Any]:
        groups = grouped(*arguments, **options)
        put_advantages(groups, estimate)
        return groups

    return group_and_estimate


def put_advantages(groups: Sequence[Any], estimate: StepAdvantages) -> None:
    """Write `step.advantage`, one number for each token of the response, in all steps of the groups.

    Args:
        groups: With `group_id` and `trajectories`; attempts are compared within a group.
        estimate: The estimator.
    """
    trajectories = [(group.group_id, trajectory) for group in groups for trajectory in group.trajectories]
    attempts = [turns_of(trajectory) for _, trajectory in trajectories]
    advantages = estimate(attempts, [group_id for group_id, _ in trajectories])
    for (_, trajectory), advantage_T in zip(trajectories, advantages, strict=True):
        for step, advantage in zip(trajectory.steps, advantage_T, strict=True):
            step.advantage = [float(advantage)] * len(step.response_ids)


def turns_of(trajectory: Any) -> list[Turn]:
    """A trajectory's steps, with their own rewards or, where all of these are 0, the trajectory's at the end.

    Raises:
        ValueError: a step has neither an observation nor messages that it answers.
    """
    turns = [
        Turn(_observation(step, f"step {place} of trajectory {trajectory.uid}"), _action(step), step.reward)
        for place, step in enumerate(trajectory.steps)
    ]
    paid = any(turn.reward for turn in turns)
    return turns if paid else with_final_reward(turns, trajectory.reward or 0.0)


def _observation(step: Any, where: str) -> str:
    """What the step says it saw, else what its messages say since the last answer."""
    if step.observation is not None:
        return step.observation if isinstance(step.observation, str) else repr(step.observation)
    turns = turns_of_conversation(step.chat_completions)
    if not turns:
        raise ValueError(f"{where} has neither `observation` nor an answer in `chat_completions`; set one of them")
    return str(turns[-1].observation)


def _action(step: Any) -> str:
    action = getattr(step.action, "action", step.action)
    return step.model_response if action is None else action if isinstance(action, str) else repr(action)
