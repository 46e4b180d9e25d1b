"""HGPO in rLLM: every step has its own advantage, which the trainer uses unchanged.

Written against rLLM 0.3.0.pre (commit 9beb6e0). It has not been run in a training with the real library: its test uses
objects with the same attributes. Set rllm.algorithm.use_precomputed_advantage=true; the trainer then reads
`step.advantage`. This hook, which receives all attempts at a task together, writes it:

    UnifiedTrainer(..., traj_grouping_hook=grouping(StepAdvantages("hgpo")))

With that setting, rLLM reports no mean reward of trajectories, neither in training nor in validation.
"""

from hgpo.integrations.turns import StepAdvantages, Turn, turns_of_conversation, with_final_reward


def grouping(estimate: StepAdvantages):
    """A function for `traj_grouping_hook`: groups as rLLM does and writes the advantage of every step."""
    from rllm.trainer.algorithms.transform import _default_traj_grouping_hook

    def group_and_estimate(*arguments, **options):
        groups = _default_traj_grouping_hook(*arguments, **options)
        write_advantages(groups, estimate)
        return groups

    return group_and_estimate


def write_advantages(groups, estimate: StepAdvantages) -> None:
    """Write `step.advantage`, one number for each response token, in all steps of the groups.

    Args:
        groups: Objects with `group_id` and `trajectories`; attempts are compared within a group.
        estimate: The estimator.
    """
    trajectories = [(group.group_id, trajectory) for group in groups for trajectory in group.trajectories]
    attempts = [turns_of(trajectory) for _, trajectory in trajectories]
    advantages = estimate(attempts, [group_id for group_id, _ in trajectories])
    for (_, trajectory), advantage_T in zip(trajectories, advantages, strict=True):
        for step, advantage in zip(trajectory.steps, advantage_T, strict=True):
            step.advantage = [float(advantage)] * len(step.response_ids)


def turns_of(trajectory) -> list[Turn]:
    """A trajectory's steps with their rewards; if all rewards are 0, the last step gets the trajectory's reward."""
    turns = [Turn(observation(step), action(step), step.reward) for step in trajectory.steps]
    has_step_rewards = any(turn.reward for turn in turns)
    return turns if has_step_rewards else with_final_reward(turns, trajectory.reward or 0.0)


def observation(step) -> str:
    """The step's `observation` or, if it is None, the step's messages before the last answer."""
    if step.observation is not None:
        return str(step.observation)
    turns = turns_of_conversation(step.chat_completions)
    if not turns:
        raise ValueError("a step has neither `observation` nor an answer in `chat_completions`; set one of them")
    return turns[-1].observation


def action(step) -> str:
    """The step's parsed action or, without one, the response."""
    parsed = getattr(step.action, "action", step.action)
    return step.model_response if parsed is None else str(parsed)
