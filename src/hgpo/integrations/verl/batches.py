"""Between verl's queue and this project's records: read steps, compute their advantages, write those back.

Needs verl and TransferQueue. Keys are ``{uid}_{session}_{step}`` and survive any shuffle; rows that verl added to fill
a batch carry the tag ``is_padding`` and are no steps.

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

from hgpo.config import Config
from hgpo.estimators import Advantages, compute_advantages
from hgpo.integrations.tokens import spread_over_tokens
from hgpo.integrations.verl.agent_loop import RECORD_KEY
from hgpo.integrations.verl.episodes import record_from
from hgpo.rollout.records import StepRecord, to_step_batch
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The steps of a verl batch, and the row each stands in."""

    records: list[StepRecord]
    row_N: NDArray[np.int64]


def is_padding(tag: Any) -> bool:
    """Whether a row was added to fill the batch."""
    return bool(tag.get("is_padding", False))


def read_steps(batch: Any) -> BatchSteps:
    """The records of all rows but padding.

    Raises ``ValueError`` when a row has no record or its key and its record disagree about the step.
    """
    rows = [row for row, tag in enumerate(batch.tags) if not is_padding(tag)]
    if not rows:
        return BatchSteps([], np.empty(0, dtype=np.int64))
    keys = [batch.keys[row] for row in rows]
    data = transfer_queue.kv_batch_get(
        keys=keys,
        partition_id=batch.partition_id,
        select_fields=["prompts", "responses", "rollout_log_probs", "extra_fields"],
    )
    columns = [_rows_of(data[name]) for name in ("prompts", "responses", "rollout_log_probs")]
    records = []
    for key, extra, prompt, response, log_probs in zip(keys, list(data["extra_fields"]), *columns, strict=True):
        plain = getattr(extra, "data", extra).get(RECORD_KEY)
        if plain is None:
            raise ValueError(f"row {key} holds no step record: was it played by another agent loop?")
        if plain["step"] != int(key.rsplit("_", 1)[1]):
            raise ValueError(f"row {key} holds step {plain['step']} of trajectory {plain['trajectory']!r}")
        records.append(
            record_from(plain, prompt.astype(np.int32), response.astype(np.int32), log_probs.astype(np.float32))
        )
    return BatchSteps(records, np.asarray(rows, dtype=np.int64))


def put_advantages(batch: Any, steps: BatchSteps, config: Config) -> tuple[Any, StepBatch, Advantages]:
    """Compute the advantage of every step with the core and write it, cast to float32, to every response token.

    Padding rows get 0. Returns what TransferQueue answered, the core's input and its result, in the order of the
    records.
    """
    step_batch = to_step_batch(steps.records)
    advantages = compute_advantages(
        step_batch,
        estimator=config.advantage.estimator,
        gamma=config.advantage.gamma,
        **config.estimator_options,
    )
    masks = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
    )["response_mask"]
    columns = {
        "advantages": spread_over_tokens(advantages.values, masks, steps.row_N),
        "returns": spread_over_tokens(advantages.returns, masks, steps.row_N),
    }
    answer = transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch.keys))
    )
    return answer, step_batch, advantages


def _rows_of(nested: torch.Tensor) -> Sequence[NDArray[Any]]:
    return [row.cpu().numpy() for row in nested.unbind()]
