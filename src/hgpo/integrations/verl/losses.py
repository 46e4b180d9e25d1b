"""verl's policy losses under names of this project's, with figures that count every token alike.

verl takes the mean of micro-batches' means, and micro-batches differ in size. Here a figure comes multiplied by its
tokens, with the tokens beside it: the ratio of the two means is the mean over tokens (`metric_names.by_token`). The
losses and their gradients are verl's. Needs verl.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss

from hgpo.integrations.verl.metric_names import TOKENS
from hgpo.integrations.verl.update_settings import LOSSES, OWN_LOSS

PolicyLoss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]


def counting_tokens(loss: PolicyLoss) -> PolicyLoss:
    """`loss` with each figure times the tokens it is the mean of, and their number as `TOKENS`."""

    @functools.wraps(loss)
    def computed(*, response_mask: torch.Tensor, **arguments: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        value, figures = loss(response_mask=response_mask, **arguments)
        tokens = float(response_mask.sum())
        return value, {**{name: figure * tokens for name, figure in figures.items()}, TOKENS: tokens}

    return computed


for name in LOSSES.values():
    register_policy_loss(name)(counting_tokens(get_policy_loss_fn(name.removeprefix(OWN_LOSS))))
