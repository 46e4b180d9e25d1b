"""Between verl's queue and this project's records: read steps, compute their advantages, write those back.

Needs verl and TransferQueue. Keys are `{uid}_{session}_{step}` and survive any shuffle; rows that verl added to fill
a batch carry the tag `is_padding` and are no steps.

Shape suffix: N steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transfer_queue
from numpy.typing import NDArray
from tensordict import TensorDict

from hgpo.config import TrainingSettings
from hgpo.estimators import Advantages
from hgpo.integrations.tokens import spread_over_tokens
from hgpo.integrations.verl.agent_loop import FAILURE_KEY, RECORD_KEY
from hgpo.integrations.verl.episodes import record_from
from hgpo.rollout.records import StepRecord
from hgpo.rollout.rules import RolloutError

SCORED = ("input_ids", "position_ids", "prompts", "responses", "response_mask", "loss_mask")
"""Columns that the ranks read to score a batch. Left to itself verl hands them every column, the records among them."""

TRAINED = (*SCORED, "old_log_probs", "advantages", "ref_log_prob", "rollout_is_weights")
"""Columns that an update reads; the last two only where the recipe has them written."""


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The steps of a verl batch, and the key under which each lies in the queue."""

    records: list[StepRecord]
    keys: list[str]


def is_padding(tag: Any) -> bool:
    """Whether a row was added to fill the batch."""
    return bool(tag.get("is_padding", False))


def read_steps(batch: Any) -> BatchSteps:
    """The records of all rows but padding.

    Raises:
        RolloutError: an episode met an error that ends the run; the message is that of the error.
        ValueError: a row has no record, or its key and its record disagree about the step.
    """
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not is_padding(tag)]
    if not keys:
        return BatchSteps([], [])
    data = transfer_queue.kv_batch_get(
        keys=keys,
        partition_id=batch.partition_id,
        select_fields=["prompts", "responses", "rollout_log_probs", "extra_fields"],
    )
    columns = [_rows_of(data[name]) for name in ("prompts", "responses", "rollout_log_probs")]
    records = []
    for key, extra, prompt, response, log_probs in zip(keys, list(data["extra_fields"]), *columns, strict=True):
        stored = getattr(extra, "data", extra)
        if FAILURE_KEY in stored:
            raise RolloutError(stored[FAILURE_KEY])
        plain = stored.get(RECORD_KEY)
        if plain is None:
            raise ValueError(f"row {key} holds no step record: was it played by another agent loop?")
        if plain["step"] != int(key.rsplit("_", 1)[1]):
            raise ValueError(f"row {key} holds step {plain['step']} of trajectory {plain['trajectory']!r}")
        records.append(
            record_from(plain, prompt.astype(np.int32), response.astype(np.int32), log_probs.astype(np.float32))
        )
    return BatchSteps(records, keys)


def skipped(steps: BatchSteps, advantages: Advantages, settings: TrainingSettings) -> set[str]:
    """Keys of the steps that the update leaves out; they were of use for the advantages of others."""
    return {
        key
        for key, record, value in zip(steps.keys, steps.records, advantages.values, strict=True)
        if (settings.skip_cut_responses and not record.finished) or (settings.skip_zero_advantage and value == 0)
    }


def leave_out(batch: Any, keys: set[str]) -> None:
    """Take rows out of the batch and of the queue.

    Masking them would not do: they would still count for how many mini-batches there are, and a mini-batch of masked
    rows alone has a loss of 0 / 0 tokens.
    """
    kept = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if key not in keys]
    if keys:
        transfer_queue.kv_clear(keys=list(keys), partition_id=batch.partition_id)
    batch.keys[:], batch.tags[:] = [key for key, _ in kept], [tag for _, tag in kept]


def put_advantages(batch: Any, steps: BatchSteps, advantages: Advantages) -> Any:
    """Write the advantage of every step, cast to float32, to every response token; returns TransferQueue's answer.

    The batch may be in another order than the steps and lack some. Padding rows get 0.
    """
    row_of = {key: row for row, key in enumerate(batch.keys)}
    row_N = np.array([row_of.get(key, -1) for key in steps.keys], dtype=np.int64)
    there_N = row_N >= 0
    masks = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
    )["response_mask"]
    columns = {
        "advantages": spread_over_tokens(advantages.values[there_N], masks, row_N[there_N]),
        "returns": spread_over_tokens(advantages.returns[there_N], masks, row_N[there_N]),
    }
    return transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch.keys))
    )


def _rows_of(nested: torch.Tensor) -> Sequence[NDArray[Any]]:
    return [row.cpu().numpy() for row in nested.unbind()]
