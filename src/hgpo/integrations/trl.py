"""TRL: one advantage for each answer of a conversation. Written for and run on TRL 1.16.

`GRPOTrainer` accepts advantages in the shape of the completions from a subclass; `step_trainer` makes that subclass. It
imports `trl.GRPOTrainer` alone and overrides the two methods that TRL's maintainers name for this
(docs/decisions/019-trackers.md).

Shapes: B rows of a batch, T tokens of a completion; a row's answers are its runs of model tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hgpo.integrations.turns import StepAdvantages, Turn, turns_of_conversation, with_final_reward
from hgpo.storage.conversations import steps_of_conversation
from hgpo.utils.text import counted


def step_trainer(estimate: StepAdvantages, base: type[Any] | None = None) -> type[Any]:
    """A trainer like `base` in which every answer has its own advantage.

    An answer is the model's text between two results of tools or environments. Its observation is the result before it
    or, for the first answer, the prompt. A `rollout_func` may return other `observations`, and rewards of answers as
    `step_rewards`, each with one value for each answer of a completion. The sum of the reward functions is added to
    the last answer. Completions without a reward have advantage 0.

    Args:
        estimate: The estimator.
        base: `trl.GRPOTrainer` (None) or a subclass.

    Raises:
        ImportError: TRL is not installed.
    """
    if base is None:
        from trl import GRPOTrainer

        base = GRPOTrainer
    from accelerate.utils import gather_object

    class StepAdvantageTrainer(base):  # type: ignore[misc, valid-type]
        """TRL's `GRPOTrainer` with one advantage per answer, a run of model tokens."""

        _conversations: list[list[Turn]]
        _rewards_B: torch.Tensor

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            """Store the conversations and rewards of this process."""
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            weighted = rewards * self.reward_weights.to(rewards.device).unsqueeze(0)
            unscored = torch.isnan(rewards).all(dim=1)
            self._rewards_B = weighted.nansum(dim=1).masked_fill(unscored, torch.nan).cpu()
            self._conversations = [
                turns_of(row, prompt, completion)
                for row, prompt, completion in zip(inputs, prompts, completions, strict=True)
            ]
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            """Replace the advantage of each completion by one advantage per answer."""
            output = super()._generate_and_score_completions(inputs)
            generations = self.num_generations if self.model.training else self.num_generations_eval
            conversations = gather_object(self._conversations)
            scored = [not torch.isnan(reward) for reward in self._rewards_B]
            attempts = [
                with_final_reward(turns, float(reward)) if is_scored else []
                for turns, reward, is_scored in zip(conversations, self._rewards_B, scored, strict=True)
            ]
            advantages = estimate(attempts, [index // generations for index in range(len(attempts))])
            first = self.accelerator.process_index * len(self._conversations)
            mine = advantages[first : first + len(self._conversations)]
            mask_BT = output["completion_mask"]
            if "tool_mask" in output:
                mask_BT = mask_BT * output["tool_mask"]
            output["advantages"] = over_answers(mine, mask_BT).to(output["advantages"].device)
            return output

    return StepAdvantageTrainer


def turns_of(row: Mapping[str, Any], prompt: Any, completion: Any) -> list[Turn]:
    """The answers of one completion with their observations.

    Args:
        row: The row of the data set, with `observations` and `step_rewards` of a `rollout_func`.
        prompt: Messages or text.
        completion: Messages or text.

    Raises:
        ValueError: `step_rewards` do not have one value for each answer.
    """
    observations, rewards = row.get("observations"), row.get("step_rewards")
    if observations is not None:
        turns = [Turn(seen) for seen in observations]
    elif isinstance(completion, str):
        turns = [Turn(str(prompt), completion)]
    else:
        answered = turns_of_conversation([*prompt, *completion])
        turns = answered[len(answered) - len(steps_of_conversation(completion)) :]
    rewards = [0.0] * len(turns) if rewards is None else rewards
    if len(rewards) != len(turns):
        what = "answers" if observations is None else "observations"
        raise ValueError(f"{len(turns)} {what}, but {len(rewards)} step_rewards: one for each answer")
    return [Turn(turn.observation, turn.action, float(reward)) for turn, reward in zip(turns, rewards, strict=True)]


def over_answers(advantages_B: Sequence[np.ndarray], mask_BT: torch.Tensor) -> torch.Tensor:
    """Give the tokens of a row's i-th run of ones the row's i-th advantage.

    Rows without a run, such as truncated ones that TRL leaves out, and rows without advantages are 0.

    Returns:
        float32[B, T] on the mask's device.

    Raises:
        ValueError: the numbers of runs and advantages of a row differ.

    Example:

    >>> over_answers([np.array([0.5, -1.0])], torch.tensor([[1, 1, 0, 1, 0]]))
    tensor([[ 0.5000,  0.5000,  0.0000, -1.0000,  0.0000]])
    """
    ones_BT = mask_BT == 1
    run_BT = runs(ones_BT)
    advantage_BT = torch.zeros(ones_BT.shape, dtype=torch.float32, device=mask_BT.device)
    for row, advantages in enumerate(advantages_B):
        count = int(run_BT[row].max()) + 1 if ones_BT.size(1) else 0
        if not count or not len(advantages):
            continue
        if count != len(advantages):
            raise ValueError(
                f"completion {row} has {counted(count, 'run')} of model tokens, but "
                f"{counted(len(advantages), 'answer')}: "
                "with a rollout_func, give `observations` with one value for each run of ones in its env_mask"
            )
        values = torch.as_tensor(np.asarray(advantages), dtype=torch.float32).to(mask_BT.device)
        advantage_BT[row] = torch.where(ones_BT[row], values[run_BT[row].clamp(min=0)], 0.0)
    return advantage_BT


def runs(ones_BT: torch.Tensor) -> torch.Tensor:
    """The index of the run of true that began last in the row, from 0, for each token; -1 before the first run.

    Example: `runs(torch.tensor([[False, True, True, False, True]]))` is `[[-1, 0, 0, 0, 1]]`.
    """
    before_BT = torch.nn.functional.pad(ones_BT[:, :-1], (1, 0))
    return (ones_BT & ~before_BT).long().cumsum(dim=1) - 1
