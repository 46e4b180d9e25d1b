"""verl's settings of the policy update, as plain dictionaries: what is trained, on which loss. Needs no verl."""

from __future__ import annotations

from typing import Any

from hgpo.config import Config, Loss, LossAggregation

Tree = dict[str, Any]

STRATEGY = "fsdp2"  # checkpoints are published from it, and on a CPU verl has no other
_NO_DUAL_CLIP = 1e9  # verl has no switch for it, but a bound that is never reached
OWN_LOSS = "hgpo_"  # before verl's name of a loss: the same with figures by token (`losses`)
LOSSES: dict[Loss, str] = {"ppo": f"{OWN_LOSS}vanilla", "gspo": f"{OWN_LOSS}gspo", "cispo": f"{OWN_LOSS}cispo"}
_AGGREGATIONS: dict[LossAggregation, str] = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}


def lora(config: Config) -> Tree:
    """Of the model: its adapter; nothing where the weights themselves are trained."""
    settings = config.policy.lora
    if not settings.rank:
        return {}
    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    alpha = int(settings.effective_alpha)
    return {"lora_rank": settings.rank, "lora_alpha": alpha, "target_modules": targets}


def actor(config: Config) -> Tree:
    """Of the actor: loss, optimiser, checkpoints."""
    training, rollout = config.training, config.rollout
    # verl counts its mini-batches in tasks; the trainer cuts them by steps (hgpo_trainer.py): this is for its checks.
    tasks = min(rollout.tasks_per_update, max(1, training.mini_batch_size // rollout.group_size))
    return {
        "strategy": STRATEGY,
        "ppo_mini_batch_size": tasks,
        "ppo_epochs": training.epochs,
        "use_dynamic_bsz": True,
        "shuffle": True,
        "data_loader_seed": config.run.seed,
        "clip_ratio": training.clip_low,
        "clip_ratio_low": training.clip_low,
        "clip_ratio_high": training.clip_high,
        "clip_ratio_c": training.dual_clip or _NO_DUAL_CLIP,
        "policy_loss": {"loss_mode": LOSSES[training.loss]},
        "loss_agg_mode": _AGGREGATIONS[training.loss_aggregation],
        "loss_scale_factor": config.policy.max_response_tokens,  # read by the "constant" aggregation alone
        "calculate_entropy": update_needs_entropy(config),
        "entropy_coeff": training.entropy_coefficient,
        "use_kl_loss": training.kl_coefficient > 0,
        "kl_loss_coef": training.kl_coefficient,
        "kl_loss_type": "low_var_kl",
        "grad_clip": training.max_gradient_norm,
        "optim": {
            "lr": training.learning_rate,
            "weight_decay": training.weight_decay,
            "lr_scheduler_type": training.learning_rate_schedule,
            "lr_warmup_steps": training.warmup_updates,
        },
        "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
    }


def update_needs_entropy(config: Config) -> bool:
    """Whether the update has to compute the entropy, and keep what its gradient takes: as much as the logits again.

    Where it is no part of the loss, and old log-probs are computed anyway, that pass says what it is.
    """
    return config.training.entropy_coefficient > 0 or not config.recomputes_log_probs


def algorithm(config: Config) -> Tree:
    """Of what lies between rollout and loss."""
    return {
        "adv_estimator": "grpo",  # never called, the trainer computes advantages itself; it means: no critic
        "gamma": config.advantage.gamma,
        "use_kl_in_reward": False,
        "rollout_correction": _rollout_correction(config),
        "filter_groups": {"enable": False},
    }


def _rollout_correction(config: Config) -> Tree:
    """Truncated importance sampling per token, as in `hgpo.training.importance`; without a cap, verl's is free."""
    if not config.recomputes_log_probs:
        return {"bypass_mode": True}
    cap = config.training.importance_cap
    weighted: Tree = {} if cap is None else {"rollout_is": "token", "rollout_is_threshold": cap}
    return {"bypass_mode": False, **weighted}
