"""The terms of the loss, as pure functions of per-token tensors.

    loss = mean(policy_loss) + kl_coefficient · mean(kl) - entropy_coefficient · mean(entropy)

`LOSSES` are the policy losses by the names of `training.loss`, `AGGREGATIONS` the means by those of
`training.loss_aggregation`. docs/algorithms/losses.md compares them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from hgpo.config import Loss, LossAggregation
from hgpo.training.losses.aggregation import MiniBatchSize, constant_mean, sequence_mean, token_mean
from hgpo.training.losses.cispo import cispo_loss
from hgpo.training.losses.gspo import gspo_loss
from hgpo.training.losses.ppo import ppo_loss
from hgpo.training.losses.tokens import Clip, PolicyLoss, ResponseTokens

LOSSES: dict[Loss, Callable[[ResponseTokens, Clip], PolicyLoss]] = {
    "ppo": ppo_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
}

AGGREGATIONS: dict[LossAggregation, Callable[[torch.Tensor, torch.Tensor, MiniBatchSize], torch.Tensor]] = {
    "token-mean": lambda value_BT, mask_BT, size: token_mean(value_BT, mask_BT, size.tokens),
    "sequence-mean": lambda value_BT, mask_BT, size: sequence_mean(value_BT, mask_BT, size.responses),
    "constant": lambda value_BT, mask_BT, size: constant_mean(
        value_BT, mask_BT, size.responses, size.max_response_tokens
    ),
}
