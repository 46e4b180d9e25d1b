"""verl's queue: read steps and log-probs, write advantages, leave out rows, split batches into mini-batches.

Each request transfers the descriptions of all columns of all rows, and verl's trainer writes and reads every column
separately. Here log-probs are read once, and written together with the advantages.

Keys are `{uid}_{session}_{step}` and do not change when rows are shuffled. Rows with the tag `is_padding` fill up a
batch and are not steps. Needs verl and TransferQueue.

Shape suffix: N steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from hgpo.config import TrainingSettings
from hgpo.estimators import Advantages
from hgpo.integrations.verl.rows import RECORD, column, unpack_records
from hgpo.integrations.verl.verl_api import transfer_queue
from hgpo.rollout.prompts import RolloutError
from hgpo.rollout.records import StepRecord
from hgpo.steps import StepBatch

SCORED = ("input_ids", "position_ids", "prompts", "responses", "response_mask")
"""Columns that the ranks read to compute log-probs. By default verl sends all columns, including the records."""

TRAINED = (*SCORED, "old_log_probs", "advantages", "ref_log_prob", "rollout_is_weights")
"""Columns that an update reads; the last two exist only with a KL term or a correction."""

TRAINING = "train"
"""verl's partition of the training tasks and their steps."""

_READ = ("log_probs", "entropy", "rollout_log_probs", "response_mask")


@dataclass(frozen=True, slots=True)
class BatchSteps:
    """The steps of a verl batch, and the key of each in the queue."""

    records: list[StepRecord]
    keys: list[str]


def pads_batch(tag: Any) -> bool:
    """Whether a row pads the batch."""
    return bool(tag.get("is_padding", False))


def read_steps(batch: Any) -> BatchSteps:
    """The records of all rows except padding.

    Raises:
        RolloutError: an episode met an error that ends the run; has that error's message.
        ValueError: a row's key and its record disagree about the step.
    """
    keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not pads_batch(tag)]
    if not keys:
        return BatchSteps([], [])
    data = transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=[RECORD])
    records = []
    for key, record in zip(keys, unpack_records(data[RECORD]), strict=True):
        if isinstance(record, str):
            raise RolloutError(record)
        if record.step != int(key.rsplit("_", 1)[1]):
            raise ValueError(f"row {key} has step {record.step} of trajectory {record.trajectory!r}")
        records.append(record)
    return BatchSteps(records, keys)


def skipped(steps: BatchSteps, advantages: Advantages, settings: TrainingSettings) -> set[str]:
    """Keys of the steps that the update leaves out, after their returns entered the advantages of other steps."""
    return {
        key
        for key, record, value in zip(steps.keys, steps.records, advantages.values, strict=True)
        if (settings.skip_cut_responses and not record.finished) or (settings.skip_zero_advantage and value == 0)
    }


def leave_out(batch: Any, keys: set[str]) -> None:
    """Remove rows from the batch and from the queue.

    If they were only masked, they would count for the number of mini-batches, and the loss of a mini-batch with only
    masked rows would be 0 / 0.
    """
    kept = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if key not in keys]
    if keys:
        transfer_queue.kv_clear(keys=list(keys), partition_id=batch.partition_id)
    batch.keys[:], batch.tags[:] = [key for key, _ in kept], [tag for _, tag in kept]
    batch._size = len(kept)  # counted when the batch was created; `reorder` checks it


def put_advantages(
    batch: Any, steps: BatchSteps, advantages: Advantages, columns: Mapping[str, torch.Tensor] | None = None
) -> Any:
    """Write the advantage of every step, cast to float32, to every response token; returns TransferQueue's answer.

    The batch may be in another order than the steps and lack some. Padding rows get 0. `columns`, nested like the
    responses, are written with it, since each request transfers the descriptions of all columns of all rows.
    """
    advantage_of = dict(zip(steps.keys, advantages.values.astype(np.float32), strict=True))
    advantage_B = np.array([advantage_of.get(key, 0.0) for key in batch.keys], dtype=np.float32)
    lengths_B = [tag["response_len"] for tag in batch.tags]
    fields = {"advantages": column(np.repeat(advantage_B, lengths_B), lengths_B)}
    for name, nested in (columns or {}).items():
        fields[name] = column(nested.values().numpy(), lengths_B)
    return transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch.keys))
    )


def old_log_probs(batch: Any) -> tuple[TensorDict, float]:
    """The nested columns that `engine.corrected` reads, and the mean entropy over response tokens."""
    read = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_READ))
    lengths_B = [tag["response_len"] for tag in batch.tags]
    mask = read["response_mask"]
    entropy = _of_response(read["entropy"], lengths_B).values()[mask.values().bool()]
    columns = {
        "old_log_probs": _of_response(read["log_probs"], lengths_B),
        "rollout_log_probs": read["rollout_log_probs"],
        "response_mask": mask,
    }
    return TensorDict(columns, batch_size=len(lengths_B)), entropy.float().mean().item()


def reference_log_probs(batch: Any) -> torch.Tensor:
    """The reference's log-probs of the response tokens, nested."""
    read = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["log_probs"])
    return _of_response(read["log_probs"], [tag["response_len"] for tag in batch.tags])


def _of_response(scored: torch.Tensor, lengths_B: Sequence[int]) -> torch.Tensor:
    """The response tokens' numbers from those of all input tokens, where number t belongs to token t + 1."""
    values, ends = scored.values(), scored.offsets().tolist()[1:]  # type: ignore[attr-defined]  # of nested ones
    # On CPUs, a policy in bfloat16 has log-probs in bfloat16, which NumPy does not have.
    rows = [values[end - length - 1 : end - 1].float() for end, length in zip(ends, lengths_B, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a batch is cut into mini-batches.

    Attributes:
        mini_batches: number of mini-batches.
        size: rows of each.
        padding: number of rows in all of them that are not steps.
    """

    mini_batches: int
    size: int
    padding: int


def cut(steps: int, mini_batch_size: int, ranks: int, counted: int = 0) -> Cut:
    """Split a batch into the fewest equal mini-batches; their size is a multiple of `ranks`, and as small as possible.

    The built-in trainer's parts may differ by one step, so that it has up to twice as many where `steps` is much
    smaller than `counted`. verl itself pads a batch to whole mini-batches, so that its last one may have only a few
    steps.

    Args:
        steps: number of rows to be trained on.
        mini_batch_size: the most rows per optimiser step; a multiple of `ranks`.
        ranks: number of training processes; each takes an equal share of a mini-batch.
        counted: number of steps that determines the number of mini-batches, if larger than `steps`, since steps with
            advantage 0 may be left out. There are fewer mini-batches if one would consist of padding only.

    Raises:
        ValueError: there are no steps.

    Example: 1,000 steps in mini-batches of at most 256 on 4 ranks: `Cut(mini_batches=4, size=252, padding=8)`.
    """
    if steps < 1:
        raise ValueError("there are no steps to split into mini-batches")
    most = ceil(max(steps, counted) / mini_batch_size)
    for mini_batches in range(most, 0, -1):
        size = ceil(steps / (mini_batches * ranks)) * ranks
        padding = mini_batches * size - steps
        if padding < size:
            break
    return Cut(mini_batches, size, padding)


def wait_for_a_group(buffer: Any) -> None:
    """Make verl's replay buffer read the queue only after a group has ended.

    verl polls the tags of all rows, five times a second. This polls only the tags of unfinished tasks.
    """
    wait = buffer._wait_for_next_poll

    def wait_longer(partition_id: str, last_message: float) -> float:
        waiting = [*buffer.pending_keys[partition_id], *buffer.running_keys[partition_id]]
        last_message = wait(partition_id, last_message)
        while waiting and _unfinished(waiting, partition_id) == len(waiting):
            last_message = wait(partition_id, last_message)
        return last_message

    buffer._wait_for_next_poll = wait_longer


def _unfinished(tasks: list[str], partition_id: str) -> int:
    found = transfer_queue.get_client().kv_retrieve_meta(keys=tasks, partition_id=partition_id, create=False)
    return sum(tag.get("status") in ("pending", "running") for tag in found.custom_meta)


@dataclass(frozen=True, slots=True)
class UpdateState:
    """The data of one update, from the end of its rollouts to its row of metrics.

    Attributes:
        steps: all collected steps, and their keys in verl's queue.
        batch: the same steps in the estimator's format.
        advantages: advantages of all steps.
        trained: the steps that the policy is trained on; empty if all are skipped or only the critic is trained.
        rows: number of rows of verl's batch, without padding.
        lost: number of trajectories that were started and did not return.
        staleness: see `staleness`; empty if sampling is synchronous.
        cut: the mini-batches; known once verl has set the number of ranks.
        scored: the columns of `old_log_probs`, if the trainer recomputes log-probs.
        reference: the reference's log-probs, nested, if there is a reference.
    """

    steps: BatchSteps
    batch: StepBatch
    advantages: Advantages
    trained: list[StepRecord]
    rows: int
    lost: int = 0
    staleness: Mapping[str, float] = field(default_factory=dict)
    cut: Cut = field(default=Cut(0, 0, 0))
    scored: Any = None
    reference: Any = None


def lost_trajectories(steps: BatchSteps, started: int) -> int:
    """The number of the `started` trajectories of an update that did not return."""
    return started - len({key.rsplit("_", 1)[0] for key in steps.keys})


def staleness(batch: Any, update: int) -> dict[str, float]:
    """How many policy versions ago the tokens of a batch were sampled: `staleness_…`, docs/reference/metrics.md.

    Args:
        batch: verl's batch; the tags of a step contain the oldest and the newest policy version that sampled it.
        update: number of the update; its policy has version `update` - 1.
    """
    ages: dict[str, list[tuple[int, int]]] = {}
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        if not pads_batch(tag):
            oldest, newest = (update - 1 - tag[f"{which}_global_steps"] for which in ("min", "max"))
            ages.setdefault(group_of(key), []).append((oldest, newest))
    if not ages:
        return {}
    step_N = [oldest for group in ages.values() for oldest, _ in group]
    spreads = [max(old for old, _ in group) - min(new for _, new in group) for group in ages.values()]
    return {
        "staleness_min": min(new for group in ages.values() for _, new in group),
        "staleness_mean": float(np.mean(step_N)),
        "staleness_max": max(step_N),
        "staleness_spread_mean": float(np.mean(spreads)),
        "staleness_spread_max": max(spreads),
    }


def group_of(key: str) -> str:
    """The uid of a step's group, which is the key of the group's task."""
    return key.split("_", 1)[0]


def groups_in_queue() -> int:
    """Number of groups of training tasks that were drawn and that no update has taken."""
    return sum(bool(tag.get("is_prompt")) for tag in _training_tags().values())


def clear_rows_without_task() -> None:
    """Delete the steps of groups that an update has taken."""
    tags = _training_tags()
    left = [key for key, tag in tags.items() if not tag.get("is_prompt") and group_of(key) not in tags]
    if left:
        transfer_queue.kv_clear(keys=left, partition_id=TRAINING)


def _training_tags() -> dict[str, dict[str, Any]]:
    tags: dict[str, dict[str, Any]] = (transfer_queue.kv_list(TRAINING) or {}).get(TRAINING, {})
    return tags
