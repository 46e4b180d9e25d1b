"""Changes to verl's training engine: importance correction, the weights of tokens in the loss, four repairs.

    old_log_probs (trainer), rollout_log_probs (engine) -> rollout_is_weights -> [verl: the loss of each token]
    response_mask of a mini-batch -> token_weight of each row -> [verl: the loss of each token] -> its weighted sum

The second line replaces verl's own aggregations: two of them count padding rows as responses, and none averages over
micro-batches.

**Repairs of verl 0.9.1's FSDP2 engine**, in every process of a run:

1. The fused kernels read `lm_head.weight` without calling `lm_head`, and FSDP2 gathers a separately wrapped head only
   when it is called: with untied embeddings (Qwen2.5-7B) the first pass raises "got mixed torch.Tensor and DTensor".
   The head stays in the outermost unit, which is gathered during the whole pass.
2. A model in bfloat16 (`ref.fsdp_config.model_dtype`) is cast as a whole. That changes the frequencies of its rotary
   embeddings by up to 0.4 %, so after thousands of prompt tokens the reference sees other positions than the policy.
   The frequencies are computed again in float32.
3. verl's warm-up starts at a learning rate of 0, so the first update changes nothing. Here it starts at
   the full rate / (warm-up + 1), as in `hgpo.training.update.set_learning_rate`.
4. A checkpoint of a model with LoRA would contain the whole float32 model, under names of wrapped modules that
   transformers cannot load. Only the adapter is written, by `hgpo.policies.weights.save_adapter`.

Needs verl and TransferQueue. Shape suffixes: B rows of the batch, N response tokens, T tokens of a padded row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch.optim.lr_scheduler import LambdaLR

from hgpo.config import TrainingSettings
from hgpo.integrations.verl import verl_api
from hgpo.policies.weights import restore_rotary, save_adapter
from hgpo.training.losses import sampler_mismatch, token_weights, weighted_mean

_WRITTEN = ("rollout_is_weights", "response_mask")
_HEAD = "lm_head"
_AGGREGATION = ("loss_aggregation", "loss_micro_batch_rows", "max_response_tokens")
_WEIGHT = "token_weight"
UPDATE = "update"
"""Key of the update's number in a batch's `extra_info`."""


def corrected(
    nested: TensorDict, settings: Mapping[str, Any], cap: float | None
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Compute the tokens' importance weights, the mask without rejected tokens, and metrics.

    Args:
        nested: response_mask, old_log_probs and rollout_log_probs, nested: rows have different lengths. In rows that
            pad the batch, the mask is 0.
        settings: verl's `algorithm.rollout_correction`.
        cap: `training.importance_cap`, for the metrics.

    Returns:
        The columns that the correction adds or changes, nested; the metrics of
        `hgpo.training.losses.sampler_mismatch` over all steps, and verl's own metrics, `rollout_corr/…`.
    """
    mask = nested["response_mask"]
    padded = verl_api.DataProto(batch=nested.to_padded_tensor())
    token_BT = padded.batch["response_mask"].bool()
    log_probs = (padded.batch[name] for name in ("old_log_probs", "rollout_log_probs"))
    trainer_N, engine_N = (log_prob_BT[token_BT].float().cpu().numpy() for log_prob_BT in log_probs)
    padded, metrics = verl_api.compute_rollout_correction_and_add_to_batch(padded, settings)
    columns = {name: verl_api.response_to_nested(padded.batch[name], mask) for name in _WRITTEN if name in padded.batch}
    columns["response_mask"] = columns["response_mask"].to(mask.dtype)
    return columns, {**metrics, **sampler_mismatch(trainer_N, engine_N, cap)}


# ---- weights of tokens ---------------------------------------------------------------------------------------------


def aggregation_facts(training: TrainingSettings, max_response_tokens: int) -> dict[str, Any]:
    """Settings that the ranks need for the loss of the policy; they are sent with the batch."""
    values = (training.loss_aggregation, training.loss_micro_batch_rows, max_response_tokens)
    return dict(zip(_AGGREGATION, values, strict=True))


def forward_backward_batch(engine: Any, data: TensorDict, loss_function: Any, forward_only: bool = False) -> Any:
    """verl's method. Before, each row gets its weight in the loss, if the mini-batch has `aggregation_facts`, and the
    optimiser the learning rate of the update, if it has `UPDATE`.
    """
    facts = [verl_api.get_non_tensor_data(data=data, key=name, default=None) for name in _AGGREGATION]
    if not forward_only and None not in facts:
        data[_WEIGHT] = row_weights(data["response_mask"], *facts, group=engine.get_data_parallel_group())
    update = verl_api.get_non_tensor_data(data=data, key=UPDATE, default=None)
    if not forward_only and update is not None:
        follow_updates(engine.lr_scheduler, update)
    if "loss_mask" not in data:  # verl counts its tokens, and it is not sent through the queue
        data["loss_mask"] = data["response_mask"]
    return _forward_backward_batch(engine, data, loss_function, forward_only)


def row_weights(mask: torch.Tensor, aggregation: Any, rows: int, max_tokens: int, *, group: Any = None) -> torch.Tensor:
    """Weights of the rows' tokens, float32[B]: the weighted sum over all ranks is the mini-batch's mean.

    Args:
        mask: nested response mask of the rows on this rank; rows without tokens (padding) get weight 0.
        aggregation: `training.loss_aggregation`.
        rows: `training.loss_micro_batch_rows` of each rank.
        max_tokens: `policy.max_response_tokens`.
        group: the ranks that share the mini-batch.
    """
    length_B = mask.to_padded_tensor(0).sum(-1).cpu().numpy().astype(np.int64)
    found = token_weights(length_B, aggregation, max_response_tokens=max_tokens, micro_batch_rows=rows)
    divisor = torch.tensor(found.divisor, dtype=torch.float64, device=verl_api.get_device_id())
    torch.distributed.all_reduce(divisor, group=group)
    return torch.from_numpy(found.weight_B / divisor.item()).float().to(mask.device)


def ppo_loss(config: Any, model_output: Any, data: TensorDict, dp_group: Any = None) -> Any:
    """verl's loss of the policy, with means that use the rows' weights."""
    config.global_batch_info[_WEIGHT] = data.get(_WEIGHT, None)
    return _ppo_loss(config, model_output, data, dp_group)


def agg_loss(
    loss_mat: torch.Tensor,
    loss_mask: torch.Tensor,
    loss_agg_mode: str,
    dp_size: int = 1,
    token_weight: torch.Tensor | None = None,
    **sizes: Any,
) -> torch.Tensor:
    """The weighted sum over tokens, times the number of ranks, since gradients are averaged; verl's without weights."""
    if token_weight is None:
        found: torch.Tensor = _agg_loss(loss_mat, loss_mask, loss_agg_mode, dp_size=dp_size, **sizes)
        return found
    return weighted_mean(loss_mat, loss_mask.bool(), token_weight.to(loss_mat.device), 1.0) * dp_size


# ---- repairs -------------------------------------------------------------------------------------------------------


def constant_schedule(optimizer: Any, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """A learning rate that rises to its full value at the first step after the warm-up, and then stays constant."""
    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (num_warmup_steps + 1)), last_epoch)


def follow_updates(schedule: LambdaLR, update: int) -> None:
    """Set the rate of an update, from 1. verl's schedule counts only the updates that train the policy."""
    schedule.last_epoch = update - 1
    for group, base, rate in zip(schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["lr"] = base * rate(update - 1)


def cosine_schedule(optimizer: Any, num_warmup_steps: int, num_training_steps: int, **options: Any) -> LambdaLR:
    """The same warm-up, then verl's cosine, with steps counted from 1 in a schedule that is one step longer."""
    found: LambdaLR = _cosine_schedule(
        optimizer, num_warmup_steps + 1, num_training_steps + 1, **{**options, "zero_indexed_step": False}
    )
    return found


def leave_fused_head_to_root(model: Any, layers: list[str]) -> list[Any]:
    """The modules that FSDP2 wraps separately, except a head whose weight the fused kernels read."""
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


def should_save_hf_model(manager: Any) -> bool:
    """Whether verl writes the whole model for transformers; false if the model has an adapter."""
    return "hf_model" in manager.checkpoint_save_contents and not manager._has_lora()


def save_checkpoint(manager: Any, local_path: str, *arguments: Any, **options: Any) -> None:
    """Save verl's checkpoint, and the adapter if the model has one."""
    _save_checkpoint(manager, local_path, *arguments, **options)
    if "hf_model" in manager.checkpoint_save_contents and manager._has_lora():
        save_adapter(manager.model, Path(local_path) / "huggingface", whole=_whole, write=manager.rank == 0)
        torch.distributed.barrier()


def _whole(weight: torch.Tensor) -> torch.Tensor:
    """A weight on the CPU, gathered from all ranks."""
    found: Any = weight.detach()
    if hasattr(found, "full_tensor"):
        found = found.to(found.device_mesh.device_type).full_tensor()  # gathering needs the ranks' device
    gathered: torch.Tensor = found.cpu()
    return gathered


_select_wrap_targets = verl_api.replace("_select_fsdp2_wrap_targets", leave_fused_head_to_root)
_build_module = verl_api.replace("FSDPEngine._build_module", build_module)
verl_api.replace("FSDPCheckpointManager.should_save_hf_model", property(should_save_hf_model))
_save_checkpoint = verl_api.replace("FSDPCheckpointManager.save_checkpoint", save_checkpoint)
_forward_backward_batch = verl_api.replace("FSDPEngine.forward_backward_batch", forward_backward_batch)
_ppo_loss = verl_api.replace("ppo_loss", ppo_loss)
_agg_loss = verl_api.replace("agg_loss", agg_loss)
verl_api.replace("losses_agg_loss", agg_loss)
verl_api.replace("get_constant_schedule_with_warmup", constant_schedule)
_cosine_schedule = verl_api.replace("get_cosine_schedule_with_warmup", cosine_schedule)
