"""Which setting of a recipe decides which of verl's, for error messages. Does not import verl."""

from __future__ import annotations

from collections.abc import Iterable

from hgpo.config import ConfigError

_ACTOR, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
_ROLLOUT, _CORRECTION = "actor_rollout_ref.rollout", "algorithm.rollout_correction"

OWNERS: dict[str, str] = {
    "data.train_files": "environment.train_split",
    "data.val_files": "evaluation.split",
    "data.train_batch_size": "rollout.tasks_per_update",
    "data.max_prompt_length": "policy.max_prompt_tokens",
    "data.max_response_length": "policy.max_response_tokens",
    "data.seed": "run.seed",
    f"{_MODEL}.path": "policy.model",
    f"{_MODEL}.lora_rank": "policy.lora.rank",
    f"{_MODEL}.lora_alpha": "policy.lora.alpha",
    f"{_MODEL}.target_modules": "policy.lora.targets",
    f"{_ACTOR}.ppo_mini_batch_size": "training.mini_batch_size",
    f"{_ACTOR}.ppo_epochs": "training.epochs",
    f"{_ACTOR}.use_dynamic_bsz": "training.micro_batch_tokens",
    f"{_ACTOR}.data_loader_seed": "run.seed",
    f"{_ACTOR}.clip_ratio": "training.clip_low",
    f"{_ACTOR}.clip_ratio_low": "training.clip_low",
    f"{_ACTOR}.clip_ratio_high": "training.clip_high",
    f"{_ACTOR}.clip_ratio_c": "training.dual_clip",
    f"{_ACTOR}.policy_loss": "training.loss",
    f"{_ACTOR}.loss_agg_mode": "training.loss_aggregation",
    f"{_ACTOR}.loss_scale_factor": "policy.max_response_tokens",
    f"{_ACTOR}.entropy_coeff": "training.entropy_coefficient",
    f"{_ACTOR}.use_kl_loss": "training.kl_coefficient",
    f"{_ACTOR}.kl_loss_coef": "training.kl_coefficient",
    f"{_ACTOR}.grad_clip": "training.max_gradient_norm",
    f"{_ACTOR}.optim.lr": "training.learning_rate",
    f"{_ACTOR}.optim.weight_decay": "training.weight_decay",
    f"{_ACTOR}.optim.lr_scheduler_type": "training.learning_rate_schedule",
    f"{_ACTOR}.optim.lr_warmup_steps": "training.warmup_updates",
    f"{_ROLLOUT}.name": "verl.rollout",
    f"{_ROLLOUT}.n": "rollout.group_size",
    f"{_ROLLOUT}.temperature": "rollout.temperature",
    f"{_ROLLOUT}.seed": "run.seed",
    f"{_ROLLOUT}.tensor_model_parallel_size": "verl.tensor_parallel",
    f"{_ROLLOUT}.val_kwargs": "evaluation.temperature",
    f"{_ROLLOUT}.agent.num_workers": "verl.agent_workers",
    f"{_CORRECTION}.bypass_mode": "training.recompute_log_probs",
    f"{_CORRECTION}.rollout_is": "training.importance_cap",
    f"{_CORRECTION}.rollout_is_threshold": "training.importance_cap",
    "algorithm.gamma": "advantage.gamma",
    "algorithm.use_kl_in_reward": "training.kl_coefficient",
    "algorithm": "advantage.estimator",  # the rest configures verl's own advantages, which are unused
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
}
"""verl's setting or table, by its dotted name -> the setting of a recipe that decides it; others have a fixed value."""


def owner_of(name: str) -> str | None:
    """The setting that decides verl's setting `name`, or None for a fixed value."""
    parts = name.split(".")
    prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((OWNERS[prefix] for prefix in prefixes if prefix in OWNERS), None)


def reject_owned(name: str, mapped: Iterable[str], *, recomputes_log_probs: bool) -> None:
    """Reject an override of a setting that the recipe's own tables decide: `config.toml` and reports show those.

    Args:
        name: verl's setting that `[verl.overrides]` names.
        mapped: verl's settings that follow from the recipe.
        recomputes_log_probs: whether the trainer computes the old log-probs.

    Raises:
        ConfigError: names the setting of the recipe to change instead.
    """
    if name.startswith(f"{_CORRECTION}.") and not recomputes_log_probs:
        raise ConfigError(
            f"verl.overrides.{name} is read where the trainer computes the old log-probs: set "
            "training.recompute_log_probs = true, too"
        )
    overlapping = [known for known in mapped if known == name or known.startswith(f"{name}.")]
    is_of_advantages = name.startswith("algorithm.") and not name.startswith(f"{_CORRECTION}.")
    if not overlapping and not is_of_advantages:
        return
    setting = owner_of(overlapping[0] if overlapping else name)
    if setting is None:
        raise ConfigError(f"verl.overrides.{name} cannot be changed: this engine supports only one value")
    raise ConfigError(f"verl.overrides.{name} is settled by the recipe's {setting}: set that instead")
