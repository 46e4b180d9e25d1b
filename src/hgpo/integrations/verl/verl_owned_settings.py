"""Which setting of this project settles which of verl's, so that a refusal can name it. No verl is needed here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hgpo.config import Config, ConfigError, Loss, LossAggregation

_ACTOR, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
_ROLLOUT, _CORRECTION = "actor_rollout_ref.rollout", "algorithm.rollout_correction"
_ENGINE = "the engine itself"  # no setting: nothing else would work, or it is this project's own part

SETTLED_BY: dict[str, str] = {
    "data.train_files": "environment.train_split",
    "data.val_files": "evaluation.split",
    "data.custom_cls": _ENGINE,
    "data.train_batch_size": "rollout.tasks_per_update",
    "data.max_prompt_length": "policy.max_prompt_tokens",
    "data.max_response_length": "policy.max_response_tokens",
    "data.dataloader_num_workers": _ENGINE,
    "data.shuffle": _ENGINE,
    "data.seed": "run.seed",
    f"{_MODEL}.path": "policy.model",
    f"{_MODEL}.lora_rank": "policy.lora.rank",
    f"{_MODEL}.lora_alpha": "policy.lora.alpha",
    f"{_MODEL}.target_modules": "policy.lora.targets",
    f"{_ACTOR}.strategy": _ENGINE,
    f"{_ACTOR}.ppo_mini_batch_size": "training.mini_batch_size",
    f"{_ACTOR}.ppo_epochs": "training.epochs",
    f"{_ACTOR}.use_dynamic_bsz": "training.micro_batch_tokens",
    f"{_ACTOR}.shuffle": _ENGINE,
    f"{_ACTOR}.data_loader_seed": "run.seed",
    f"{_ACTOR}.clip_ratio": "training.clip_low",
    f"{_ACTOR}.clip_ratio_low": "training.clip_low",
    f"{_ACTOR}.clip_ratio_high": "training.clip_high",
    f"{_ACTOR}.clip_ratio_c": "training.dual_clip",
    f"{_ACTOR}.policy_loss": "training.loss",
    f"{_ACTOR}.loss_agg_mode": "training.loss_aggregation",
    f"{_ACTOR}.loss_scale_factor": "policy.max_response_tokens",
    f"{_ACTOR}.calculate_entropy": _ENGINE,
    f"{_ACTOR}.entropy_coeff": "training.entropy_coefficient",
    f"{_ACTOR}.use_kl_loss": "training.kl_coefficient",
    f"{_ACTOR}.kl_loss_coef": "training.kl_coefficient",
    f"{_ACTOR}.kl_loss_type": _ENGINE,
    f"{_ACTOR}.grad_clip": "training.max_gradient_norm",
    f"{_ACTOR}.optim.lr": "training.learning_rate",
    f"{_ACTOR}.optim.weight_decay": "training.weight_decay",
    f"{_ACTOR}.optim.lr_scheduler_type": "training.learning_rate_schedule",
    f"{_ACTOR}.optim.lr_warmup_steps": "training.warmup_updates",
    f"{_ACTOR}.checkpoint.save_contents": _ENGINE,
    "actor_rollout_ref.ref.strategy": _ENGINE,
    f"{_ROLLOUT}.name": "verl.rollout",
    f"{_ROLLOUT}.mode": _ENGINE,
    f"{_ROLLOUT}.n": "rollout.group_size",
    f"{_ROLLOUT}.temperature": "rollout.temperature",
    f"{_ROLLOUT}.top_k": _ENGINE,
    f"{_ROLLOUT}.top_p": _ENGINE,
    f"{_ROLLOUT}.seed": "run.seed",
    f"{_ROLLOUT}.calculate_log_probs": _ENGINE,
    f"{_ROLLOUT}.tensor_model_parallel_size": "verl.tensor_parallel",
    f"{_ROLLOUT}.val_kwargs": "evaluation.temperature",
    f"{_ROLLOUT}.agent.num_workers": "verl.agent_workers",
    f"{_ROLLOUT}.agent.default_agent_loop": _ENGINE,
    f"{_CORRECTION}.bypass_mode": "training.recompute_log_probs",
    f"{_CORRECTION}.rollout_is": "training.importance_cap",
    f"{_CORRECTION}.rollout_is_threshold": "training.importance_cap",
    "algorithm.gamma": "advantage.gamma",
    "algorithm.use_kl_in_reward": "training.kl_coefficient",
    "algorithm.filter_groups": "rollout.resample_uniform_groups",
    "algorithm": "advantage.estimator",  # the rest is of verl's own advantages, which nothing reads here
    "trainer.nnodes": "verl.nodes",
    "trainer.n_gpus_per_node": "verl.gpus_per_node",
    "trainer.device": "policy.device",
    "trainer.total_training_steps": "training.updates",
    "trainer.val_only": "verl.evaluate_only",
    "trainer.test_freq": "evaluation.every",
    "trainer.save_freq": "training.checkpoint_every",
    "trainer.max_actor_ckpt_to_keep": "training.keep_checkpoints",
    "trainer.default_local_dir": "run.directory",
    "trainer.experiment_name": "run.name",
    "trainer.logger": "tracking.to",
    "trainer.total_epochs": "training.updates",
    "trainer.use_v1": _ENGINE,
    "trainer.v1": _ENGINE,
    "trainer.val_before_train": _ENGINE,
    "trainer.resume_mode": _ENGINE,
    "trainer.project_name": _ENGINE,
}
"""verl's setting or table, by its dotted name -> the setting of a recipe that settles it."""


def settled_by(name: str) -> str | None:
    """The setting that settles `name` of verl's, or None; `_ENGINE` where none does and it is settled all the same."""
    parts = name.split(".")
    prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((SETTLED_BY[prefix] for prefix in prefixes if prefix in SETTLED_BY), None)


def refuse_second_say(name: str, mapped: Iterable[str], config: Config) -> None:
    """Refuse an override of what the recipe's own tables settle: they are what `config.toml` and the reports show.

    Args:
        name: verl's setting that `[verl.overrides]` names.
        mapped: verl's settings that follow from the recipe.
        config: the recipe.

    Raises:
        ConfigError: names the setting of the recipe to change instead.
    """
    if name.startswith(f"{_CORRECTION}.") and not config.recomputes_log_probs:
        raise ConfigError(
            f"verl.overrides.{name} is read where the trainer computes the old log-probs: set "
            "training.recompute_log_probs = true, too"
        )
    overlapping = [known for known in mapped if known == name or known.startswith(f"{name}.")]
    is_of_advantages = name.startswith("algorithm.") and not name.startswith(f"{_CORRECTION}.")
    if not overlapping and not is_of_advantages:
        return
    setting = settled_by(overlapping[0] if overlapping else name)
    if setting == _ENGINE:
        raise ConfigError(f"verl.overrides.{name} cannot be changed: this engine works with one value of it alone")
    raise ConfigError(f"verl.overrides.{name} is settled by the recipe's {setting}: set that instead")


# verl's settings of the policy update, as plain dictionaries: what is trained, on which loss. Needs no verl.


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
    """Truncated importance sampling per token, as in `hgpo.training.losses`; without a cap, verl's is free."""
    if not config.recomputes_log_probs:
        return {"bypass_mode": True}
    cap = config.training.importance_cap
    weighted: Tree = {} if cap is None else {"rollout_is": "token", "rollout_is_threshold": cap}
    return {"bypass_mode": False, **weighted}
