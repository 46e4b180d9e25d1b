"""Dynamic sampling and the account of lost trajectories, around verl's replay buffer. Needs verl."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import transfer_queue

from hgpo.integrations.verl.batches import read_steps
from hgpo.rollout.records import StepRecord
from hgpo.training.trainer import uniform_groups

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
            uniform = self._uniform(batch)
            if not uniform:
                break
            self._draw(len(uniform))
            fresh, _ = self._buffer.sample(
                global_steps=global_steps, partition_id=partition_id, batch_size=len(uniform)
            )
            self.lost += self._lost(fresh, len(uniform))
            self._replace(batch, sorted(uniform), fresh)
        if self.lost:
            logger.error("%d trajectories of update %d were lost and are left out", self.lost, global_steps)
        return batch, metrics

    def _uniform(self, batch: Any) -> set[str]:
        """verl's ids of the groups without a difference in score."""
        steps = read_steps(batch)
        names = uniform_groups(steps.records)
        return {_group_id(key) for record, key in zip(steps.records, steps.keys, strict=True) if record.group in names}

    def _replace(self, batch: Any, uniform: list[str], fresh: Any) -> None:
        """Useful fresh groups take the place of as many uniform ones; whatever is left over leaves the queue."""
        useful = {_group_id(key) for key in fresh.keys} - self._uniform(fresh)
        leaving = set(uniform[: len(useful)])
        rows = [*zip(batch.keys, batch.tags, strict=True)]
        new_rows = [*zip(fresh.keys, fresh.tags, strict=True)]
        kept = [row for row in rows if _group_id(row[0]) not in leaving]
        kept += [row for row in new_rows if _group_id(row[0]) in useful]
        names = {key for key, _ in kept}
        for steps in (read_steps(batch), read_steps(fresh)):
            pairs = zip(steps.keys, steps.records, strict=True)
            self.replaced += [record for key, record in pairs if key not in names]
        if dropped := [key for key, _ in [*rows, *new_rows] if key not in names]:
            transfer_queue.kv_clear(keys=dropped, partition_id=batch.partition_id)
        batch.keys[:], batch.tags[:] = [key for key, _ in kept], [tag for _, tag in kept]
        self.resampled += len(useful)

    def _lost(self, batch: Any, groups: int) -> int:
        return groups * self._group_size - len({key.rsplit("_", 1)[0] for key in batch.keys})


def _group_id(key: str) -> str:
    """`{uid}` of `{uid}_{session}_{step}`."""
    return key.rsplit("_", 2)[0]
