"""Dynamic sampling and the account of lost trajectories, around verl's replay buffer. Needs verl."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import transfer_queue

from hgpo.integrations.verl.batches import BatchSteps, read_steps
from hgpo.rollout.records import StepRecord
from hgpo.runs.resampling import exchange_uniform, uniform_groups

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
