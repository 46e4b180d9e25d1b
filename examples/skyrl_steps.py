"""HGPO in SkyRL: every step of `generator.step_wise_trajectories` has its own advantage.

Written against SkyRL 0.3.0. It has not been run in a training with the real library: its test uses a batch with the
same fields. A registered estimator of SkyRL receives only the last step of each trajectory, without observations, so
the trainer has to be replaced. In your entry point's `get_trainer()`:

    Trainer = step_trainer(StepAdvantages("hgpo"))

Keep a built-in name such as "grpo" in trainer.algorithm.advantage_estimator; its result is replaced. A step's
observation is the part of its prompt that follows the tokens of the previous step.

Shapes: B rows, one per step, the steps of a trajectory in order; T tokens of the longest response.
"""

import numpy as np
import torch

from hgpo.integrations.tokens import spread_over_tokens
from hgpo.integrations.turns import StepAdvantages, Turn, new_part


def step_trainer(estimate: StepAdvantages):
    """A subclass of SkyRL's trainer with step advantages."""
    from skyrl.train.trainer import RayPPOTrainer

    class StepTrainer(RayPPOTrainer):
        """PPO trainer with step advantages."""

        def compute_advantages_and_returns(self, data):
            """Replace trajectory advantages by step advantages; SkyRL's metrics still describe the former."""
            generator = self.cfg.generator
            if not generator.step_wise_trajectories or generator.merge_stepwise_output:
                raise ValueError(
                    "set generator.step_wise_trajectories=true and generator.merge_stepwise_output=false: each row has "
                    "to be one step"
                )
            data = super().compute_advantages_and_returns(data)
            data["advantages"] = step_advantages(data, estimate)
            return data

    return StepTrainer


def step_advantages(data, estimate: StepAdvantages) -> torch.Tensor:
    """Each step's advantage on its response tokens, float32[B, T]; padding rows have 0.

    Args:
        data: SkyRL's `TrainingInputBatch`: `sequences`, `attention_mask`, `response_mask`, `rewards`, and `metadata`
            with `uids`, `is_last_step` and perhaps `pad_size`, the number of padding rows at the end.
        estimate: The estimator.
    """
    rows = len(data["sequences"]) - data.metadata.get("pad_size", 0)
    ends = [row + 1 for row in range(rows) if data.metadata["is_last_step"][row]]
    if not ends or ends[-1] != rows:
        raise ValueError("is_last_step is not true for the last row: a trajectory is incomplete")
    starts = [0, *ends[:-1]]
    attempts = [turns_of(data, start, end) for start, end in zip(starts, ends, strict=True)]
    advantages = estimate(attempts, [data.metadata["uids"][start] for start in starts])
    return spread_over_tokens(np.concatenate(advantages), data["response_mask"], row_N=np.arange(rows))


def turns_of(data, start: int, end: int) -> list[Turn]:
    """The steps of the trajectory in rows `start` to `end` - 1."""
    turns, before, said = [], [], []
    for row in range(start, end):
        tokens = data["sequences"][row][data["attention_mask"][row].bool()].tolist()
        prompt_length = len(tokens) - int(data["response_mask"][row].sum())
        prompt, response = tokens[:prompt_length], tokens[prompt_length:]
        turns.append(Turn(new_part(before, said, prompt), tuple(response), float(data["rewards"][row].sum())))
        before, said = prompt, response
    return turns
