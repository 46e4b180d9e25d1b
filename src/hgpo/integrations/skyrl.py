"""SkyRL: an advantage for every step of `generator.step_wise_trajectories`. Read in SkyRL 0.3.0.

SkyRL asks a registered estimator for the last step of each trajectory alone, without observations, and repeats its
answer over the others. So `register` makes the name known, which the settings are checked for, and `step_trainer` is
the trainer that computes the advantages:

    register()                                              # trainer.algorithm.advantage_estimator=hgpo
    Trainer = step_trainer(StepAdvantages("hgpo"))          # in your entry point's get_trainer()

A step's observation is what its prompt adds to the tokens before it.

Shapes: B rows, one a step, those of a trajectory in a row; S tokens of a sequence, T of the longest response.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

from hgpo.integrations.attempts import StepAdvantages, Turn, new_part
from hgpo.integrations.tokens import spread_over_tokens

NAME = "hgpo"
_in_step_trainer = ContextVar("_in_step_trainer", default=False)


def register(name: str = NAME) -> None:
    """Make the estimator's name known to SkyRL, in this process; call it before the settings are checked.

    Raises:
        ImportError: SkyRL is not installed.
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator

    register_advantage_estimator(name)(placeholder)


def placeholder(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What SkyRL's registry holds: nothing to broadcast, since `step_trainer` fills the advantages in.

    Raises:
        RuntimeError: another trainer asks, which would train on one advantage a trajectory.
    """
    if not _in_step_trainer.get():
        raise RuntimeError(
            "this estimator needs the trainer of hgpo.integrations.skyrl.step_trainer: return it from get_trainer() of "
            "your entry point"
        )
    returns = token_level_rewards.sum(dim=-1, keepdim=True) * response_mask
    return torch.zeros_like(returns), returns


def step_trainer(estimate: StepAdvantages, base: type[Any] | None = None) -> type[Any]:
    """A trainer like `base` in which every step has its own advantage.

    Args:
        estimate: The estimator.
        base: `skyrl.train.trainer.RayPPOTrainer` (None) or a subclass.

    Raises:
        ImportError: SkyRL is not installed.
    """
    if base is None:
        from skyrl.train.trainer import RayPPOTrainer

        base = RayPPOTrainer

    class StepTrainer(base):  # type: ignore[misc, valid-type]
        """SkyRL's trainer with advantages of steps."""

        def compute_advantages_and_returns(self, data: Any) -> Any:
            """Put the advantages of steps in the place of those of trajectories, also in the metrics."""
            if not self.cfg.generator.step_wise_trajectories:
                raise ValueError("set generator.step_wise_trajectories=true: a row has to be one step")
            with _asking():
                data = super().compute_advantages_and_returns(data)
            data["advantages"] = step_advantages(data, estimate)
            there = data["response_mask"].bool()
            there[len(there) - data.metadata.get("pad_size", 0) :] = False
            advantages = data["advantages"][there]
            means = {"advantages": advantages.mean().item(), "advantages_abs": advantages.abs().mean().item()}
            data.metadata["metrics"].update({f"avg_{name}": mean for name, mean in means.items()})
            self.all_metrics.update({f"loss/avg_raw_{name}": mean for name, mean in means.items()})
            return data

    return StepTrainer


def step_advantages(data: Any, estimate: StepAdvantages) -> torch.Tensor:
    """Each step's advantage over its response's tokens.

    Args:
        data: SkyRL's `TrainingInputBatch`: `sequences` and `attention_mask` [B, S], `response_mask` and `rewards`
            [B, T]; `metadata` with `uids`, `is_last_step` and perhaps `pad_size`, the number of rows at the end that
            only fill the batch up.
        estimate: The estimator.

    Returns:
        float32[B, T]; rows that fill up have 0.

    Raises:
        ValueError: the last row is not the last step of its trajectory, or a trajectory has two uids.
    """
    rows = len(data["sequences"]) - data.metadata.get("pad_size", 0)
    last_B = [bool(last) for last in data.metadata["is_last_step"][:rows]]
    uids_B = list(data.metadata["uids"][:rows])
    if not last_B or not last_B[-1]:
        raise ValueError("is_last_step is not true for the last row: a trajectory is cut off")
    ends = [row + 1 for row in range(rows) if last_B[row]]
    starts = [0, *ends[:-1]]
    for start, end in zip(starts, ends, strict=True):
        if len(set(uids_B[start:end])) > 1:
            raise ValueError(f"rows {start} to {end - 1} are one trajectory and have the uids {set(uids_B[start:end])}")
    attempts = [_turns(data, start, end) for start, end in zip(starts, ends, strict=True)]
    advantages = estimate(attempts, [uids_B[start] for start in starts])
    return spread_over_tokens(np.concatenate(advantages), data["response_mask"], row_N=np.arange(rows))


def _turns(data: Any, start: int, end: int) -> list[Turn]:
    """The steps in rows `start` to `end` - 1."""
    turns: list[Turn] = []
    seen: list[int] = []
    for row in range(start, end):
        tokens = data["sequences"][row][data["attention_mask"][row].bool()].tolist()
        length = int(data["response_mask"][row].sum())
        prompt, response = tokens[: len(tokens) - length], tokens[len(tokens) - length :]
        turns.append(Turn(new_part(seen, prompt), tuple(response), float(data["rewards"][row].sum())))
        seen = tokens
    return turns


@contextmanager
def _asking() -> Iterator[None]:
    token = _in_step_trainer.set(True)
    try:
        yield
    finally:
        _in_step_trainer.reset(token)
