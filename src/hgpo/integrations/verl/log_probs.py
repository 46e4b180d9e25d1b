"""Log-probs that the ranks computed, read from verl's queue once; the trainer writes them with the advantages.

verl's trainer writes each of them as soon as it has it and reads it again, and each request transfers the descriptions
of all columns of all rows. Needs verl and TransferQueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from verl import DataProto
from verl.utils.debug.metrics import calculate_debug_metrics

_READ = ("log_probs", "entropy", "rollout_log_probs", "response_mask")


def old_log_probs(batch: Any) -> tuple[TensorDict, dict[str, float]]:
    """The columns `old_log_probs`, `rollout_log_probs` and `response_mask`, nested, and verl's metrics of the pass.

    `actor/entropy` is the mean over response tokens.
    """
    read = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_READ))
    lengths_B = [tag["response_len"] for tag in batch.tags]
    mask = read["response_mask"]
    entropy = _of_response(read["entropy"], lengths_B).values()[mask.values().bool()]
    columns = {
        "old_log_probs": _of_response(read["log_probs"], lengths_B),
        "rollout_log_probs": read["rollout_log_probs"],
        "response_mask": mask,
    }
    found = TensorDict(columns, batch_size=len(lengths_B))
    padded = DataProto(found.to_padded_tensor())
    padded.batch["responses"] = padded.batch["response_mask"]  # of which verl reads the width
    return found, {"actor/entropy": entropy.float().mean().item(), **calculate_debug_metrics(padded)}


def reference_log_probs(batch: Any) -> torch.Tensor:
    """The reference's log-probs of the response tokens, nested."""
    read = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["log_probs"])
    return _of_response(read["log_probs"], [tag["response_len"] for tag in batch.tags])


def _of_response(scored: torch.Tensor, lengths_B: Sequence[int]) -> torch.Tensor:
    """The response tokens' part of numbers for all input tokens, of which number t is that of token t + 1."""
    values, ends = scored.values(), scored.offsets().tolist()[1:]  # type: ignore[attr-defined]  # of nested ones
    rows = [values[end - length - 1 : end - 1] for end, length in zip(ends, lengths_B, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
