"""Between verl's queue and this project's records: read steps, compute their advantages, write those back.

Needs verl and TransferQueue. Keys are `{uid}_{session}_{step}` and survive any shuffle; rows that verl added to fill
a batch carry the tag `is_padding` and are no steps.

Shape suffix: N steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
from hgpo.integrations.verl.env_pool import record_from
from hgpo.rollout.prompts import RolloutError
from hgpo.rollout.records import StepRecord
from hgpo.rollout.sampling import exchange_uniform, uniform_groups

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


# Dynamic sampling and the account of lost trajectories, around verl's replay buffer. Needs verl.


logger = logging.getLogger(__name__)


class ResamplingBuffer:
    """Hands out verl's batches; groups in which all rollouts scored the same may be drawn anew first.

    `draw(count)` sends that many new tasks out. Of the newest training batch there are `resampled`, the number of
    groups replaced; `replaced`, the steps that were played and then left out, which say as much of the policy as the
    others; and `lost`, the trajectories that were sent out and did not come back.
    """

    def __init__(self, buffer: Any, *, group_size: int, attempts: int, draw: Callable[[int], Any]) -> None:
        self._buffer = buffer
        self._group_size = group_size
        self._attempts = attempts
        self._draw = draw
        self.resampled = 0
        self.replaced: list[StepRecord] = []
        self.lost = 0

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """A batch of `batch_size` groups."""
        batch, metrics = self._buffer.sample(
            global_steps=global_steps, partition_id=partition_id, batch_size=batch_size
        )
        if partition_id != "train":
            return batch, metrics
        self.resampled, self.replaced, self.lost = 0, [], self._lost(batch, batch_size)
        for _ in range(self._attempts):
            steps = read_steps(batch)
            uniform = len(uniform_groups(steps.records))
            if not uniform:
                break
            self._draw(uniform)
            fresh, _ = self._buffer.sample(global_steps=global_steps, partition_id=partition_id, batch_size=uniform)
            self.lost += self._lost(fresh, uniform)
            self._exchange(batch, steps, fresh)
        if self.lost:
            logger.error("%d trajectories of update %d were lost and are left out", self.lost, global_steps)
        return batch, metrics

    def _exchange(self, batch: Any, steps: BatchSteps, fresh: Any) -> None:
        """Useful fresh groups take the place of as many uniform ones; whatever is left over leaves the queue.

        `steps` are those of `batch`.
        """
        drawn = read_steps(fresh)
        change = exchange_uniform(steps.records, drawn.records)
        played = zip([*steps.keys, *drawn.keys], [*steps.records, *drawn.records], strict=True)
        leaving = {key: record for key, record in played if record.group in change.leaving}
        if leaving:
            transfer_queue.kv_clear(keys=list(leaving), partition_id=batch.partition_id)
        rows = zip([*batch.keys, *fresh.keys], [*batch.tags, *fresh.tags], strict=True)
        kept = [(key, tag) for key, tag in rows if key not in leaving]
        batch.keys[:], batch.tags[:] = [key for key, _ in kept], [tag for _, tag in kept]
        self.replaced += leaving.values()
        self.resampled += change.replaced

    def _lost(self, batch: Any, groups: int) -> int:
        return groups * self._group_size - len({key.rsplit("_", 1)[0] for key in batch.keys})
