"""The correction for a rollout engine whose arithmetic is not the trainer's: verl's own, computed where the advantages
are, and its figures under this project's names.

    old_log_probs (trainer), rollout_log_probs (engine) -> rollout_is_weights -> [verl: the loss of each token]

Needs verl and TransferQueue. Shape suffixes: B rows of the batch, N response tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from hgpo.integrations.verl.metrics import TOKENS
from hgpo.integrations.verl.queue import is_padding
from hgpo.integrations.verl.verl_owned_settings import LOSSES, OWN_LOSS
from hgpo.training.losses import sampler_mismatch

_FIELDS = ("response_mask", "old_log_probs", "rollout_log_probs")
_WRITTEN = ("rollout_is_weights", "response_mask")


def put_correction(batch: Any, settings: Mapping[str, Any], cap: float | None) -> dict[str, float]:
    """Write what the loss needs into the queue: weights of the tokens, and the mask without rejected ones.

    Args:
        batch: verl's, whose rows have old log-probs of the trainer.
        settings: verl's `algorithm.rollout_correction`.
        cap: `training.importance_cap`, for the figures.

    Returns:
        The figures of `hgpo.training.losses.sampler_mismatch` over all steps, and verl's own, `rollout_corr/…`.
    """
    nested = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_FIELDS))
    columns, figures = corrected(nested, [is_padding(tag) for tag in batch.tags], settings, cap)
    transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch.keys))
    )
    return figures


def corrected(
    nested: TensorDict, padding_B: Sequence[bool], settings: Mapping[str, Any], cap: float | None
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The columns that verl's correction adds or changes, nested as the given ones are, and the figures.

    Args:
        nested: response_mask, old_log_probs and rollout_log_probs, rows of different lengths.
        padding_B: rows that are no steps, and count in no figure of this project's.
        settings: as for `put_correction`.
        cap: as for `put_correction`.
    """
    mask = nested["response_mask"]
    padded = DataProto(batch=nested.to_padded_tensor())
    token_BT = padded.batch["response_mask"].bool() & ~torch.tensor(padding_B).unsqueeze(-1)
    trainer_N, engine_N = (padded.batch[name][token_BT].float().cpu().numpy() for name in _FIELDS[1:])
    padded, figures = compute_rollout_correction_and_add_to_batch(padded, settings)
    columns = {name: response_to_nested(padded.batch[name], mask) for name in _WRITTEN if name in padded.batch}
    columns["response_mask"] = columns["response_mask"].to(mask.dtype)
    return columns, {**figures, **sampler_mismatch(trainer_N, engine_N, cap)}


# verl's policy losses under names of this project's, with figures that count every token alike.
#
# verl takes the mean of micro-batches' means, and micro-batches differ in size. Here a figure comes multiplied by its
# tokens, with the tokens beside it: the ratio of the two means is the mean over tokens (`metric_names.by_token`). The
# losses and their gradients are verl's. Needs verl.


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
