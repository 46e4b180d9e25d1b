"""Changes to verl's training engine: importance correction, two repairs.

    old_log_probs (trainer), rollout_log_probs (engine) -> rollout_is_weights -> [verl: the loss of each token]

**Repairs of verl 0.9.1's FSDP2 engine**, in every process of a run:

1. The fused kernels read `lm_head.weight` without calling `lm_head`, and FSDP2 gathers a separately wrapped head only
   when it is called: with untied embeddings (Qwen2.5-7B) the first pass raises "got mixed torch.Tensor and DTensor".
   The head stays in the outermost unit, which is gathered through the whole pass.
2. A model that is loaded in bfloat16 (`ref.fsdp_config.model_dtype`) is cast as a whole, including the frequencies of
   its rotary embeddings, by up to 0.4 %: thousands of tokens into a prompt the reference sees other positions than the
   policy. They are computed again in float32.

Needs verl and TransferQueue. Shape suffixes: B rows of the batch, N response tokens, T tokens of a padded row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue
import verl.utils.fsdp_utils as fsdp_utils
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.utils.padding import response_to_nested

from hgpo.integrations.verl.queue import is_padding
from hgpo.policies.weights import restore_rotary
from hgpo.training.losses import sampler_mismatch

_FIELDS = ("response_mask", "old_log_probs", "rollout_log_probs")
_WRITTEN = ("rollout_is_weights", "response_mask")
_HEAD = "lm_head"
_select_wrap_targets = fsdp_utils._select_fsdp2_wrap_targets
_build_module = FSDPEngine._build_module


def put_correction(batch: Any, settings: Mapping[str, Any], cap: float | None) -> dict[str, float]:
    """Write the tokens' importance weights, and the mask without rejected tokens, into the queue.

    Args:
        batch: verl's, whose rows have old log-probs of the trainer.
        settings: verl's `algorithm.rollout_correction`.
        cap: `training.importance_cap`, for the metrics.

    Returns:
        The metrics of `hgpo.training.losses.sampler_mismatch` over all steps, and verl's own, `rollout_corr/…`.
    """
    nested = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(_FIELDS))
    columns, metrics = corrected(nested, [is_padding(tag) for tag in batch.tags], settings, cap)
    transfer_queue.kv_batch_put(
        keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(columns, batch_size=len(batch.keys))
    )
    return metrics


def corrected(
    nested: TensorDict, padding_B: Sequence[bool], settings: Mapping[str, Any], cap: float | None
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The columns that verl's correction adds or changes, nested as the given ones, and the metrics.

    Args:
        nested: response_mask, old_log_probs and rollout_log_probs, rows of different lengths.
        padding_B: rows that are no steps; this project's metrics leave them out.
        settings: as for `put_correction`.
        cap: as for `put_correction`.
    """
    mask = nested["response_mask"]
    padded = DataProto(batch=nested.to_padded_tensor())
    token_BT = padded.batch["response_mask"].bool() & ~torch.tensor(padding_B).unsqueeze(-1)
    trainer_N, engine_N = (padded.batch[name][token_BT].float().cpu().numpy() for name in _FIELDS[1:])
    padded, metrics = compute_rollout_correction_and_add_to_batch(padded, settings)
    columns = {name: response_to_nested(padded.batch[name], mask) for name in _WRITTEN if name in padded.batch}
    columns["response_mask"] = columns["response_mask"].to(mask.dtype)
    return columns, {**metrics, **sampler_mismatch(trainer_N, engine_N, cap)}


def leave_fused_head_to_root(model: Any, layers: list[str]) -> list[Any]:
    """The modules that FSDP2 wraps one by one, without a head whose weight the fused kernels read."""
    targets: list[Any] = _select_wrap_targets(model, layers)
    if getattr(model, "_verl_fused_kernels_backend", None) is None:
        return targets
    heads = {id(module) for name, module in model.named_modules() if name.rpartition(".")[2] == _HEAD}
    return [module for module in targets if id(module) not in heads]


def build_module(engine: Any) -> Any:
    """The engine's model with rotary embeddings in float32."""
    model = _build_module(engine)
    restore_rotary(model)
    return model


fsdp_utils._select_fsdp2_wrap_targets = leave_fused_head_to_root
FSDPEngine._build_module = build_module
