"""Settings and checks for `verl.mode`, which selects one of verl's trainers. Does not import verl.

    sync             the same GPUs sample and train, one after the other
    colocate_async   the same GPUs; rollouts of later updates begin early, pause during an update, and continue with
                     the new weights
    separate_async   some GPUs only sample, all the time; the others train

An asynchronous trainer takes complete groups, the oldest first, and drops none. It trains on tokens of older policies.
With `separate_async`, verl splits a batch into `parameter_sync_step` parts, each with an update; the value
here is 1, since the trainer makes the mini-batches itself, as in the other modes.
"""

from __future__ import annotations

from hgpo.config import VLLM_ON_CPU, ConfigError
from hgpo.config.settings import PolicySettings, TrainingSettings, VerlSettings
from hgpo.integrations.verl.config import CORRECTION, Mapped, Settings, dotted_values, is_asynchronous, on_cpu

CPU_WEIGHTS = "hgpo_store"
_CPU_WEIGHTS_MODULE = "hgpo.integrations.verl.cpu_weights"
_ROLLOUT = "actor_rollout_ref.rollout"
_ENGINE = f"{_ROLLOUT}.checkpoint_engine"
_SEPARATE = "separate_async"


def trainer_name(mode: str) -> str:
    """The name under which this project's trainer of a mode is registered with verl."""
    return f"hgpo_{mode}"


def check_mode(policy: PolicySettings, training: TrainingSettings, verl: VerlSettings) -> None:
    """Reject settings that `verl.mode` does not support.

    Raises:
        ConfigError: names the setting and the remedy.
    """
    if is_asynchronous(verl):
        _check_correction(training, verl)
    if verl.mode == _SEPARATE:
        _check_separate(policy, verl)
    elif verl.rollout_gpus > 1:
        raise ConfigError(
            f"verl.rollout_gpus = {verl.rollout_gpus}: only verl.mode = {_SEPARATE!r} has GPUs that only sample"
        )


def _check_correction(training: TrainingSettings, verl: VerlSettings) -> None:
    why = f"verl.mode = {verl.mode!r} trains on tokens of older policies; their importance weights need"
    if training.recompute_log_probs is False:
        raise ConfigError(
            f"training.recompute_log_probs = false: {why} the trainer's log-probs; leave it at auto, or use "
            "verl.mode = sync"
        )
    corrected = any(name.startswith(f"{CORRECTION}.") for name, _ in dotted_values(verl.overrides))
    if training.importance_cap is None and not corrected:
        raise ConfigError(
            f"training.importance_cap = none: {why} a cap; set one, or verl.overrides.{CORRECTION}, or use "
            "verl.mode = sync"
        )


def _check_separate(policy: PolicySettings, verl: VerlSettings) -> None:
    if policy.lora.rank:
        raise ConfigError(
            f"policy.lora.rank = {policy.lora.rank}: verl 0.9 sends the separate GPUs the base model without its "
            "adapter; use verl.mode = colocate_async"
        )
    if on_cpu(policy) and verl.rollout == VLLM_ON_CPU:
        raise ConfigError(
            f"verl.rollout = {VLLM_ON_CPU!r}: verl.mode = {_SEPARATE!r} runs on CPUs only with this project's own "
            "sampler; leave verl.rollout out, or use verl.mode = colocate_async"
        )
    if verl.tensor_parallel > verl.gpus_per_node:
        raise ConfigError(
            f"verl.tensor_parallel = {verl.tensor_parallel} exceeds verl.gpus_per_node = {verl.gpus_per_node}: with "
            f"verl.mode = {_SEPARATE!r}, verl places each copy of the rollout engine on one node"
        )
    if verl.rollout_gpus % verl.tensor_parallel:
        raise ConfigError(
            f"verl.tensor_parallel = {verl.tensor_parallel} does not divide verl.rollout_gpus = {verl.rollout_gpus}"
        )


def mode_settings(verl: VerlSettings, policy: PolicySettings, tasks: int) -> dict[str, Mapped]:
    """verl's settings that `verl.mode` decides; `tasks` is `rollout.tasks_per_update`."""
    found = {"trainer.v1.trainer_mode": Mapped(trainer_name(verl.mode), "verl.mode")}
    if verl.mode != _SEPARATE:
        return found
    found |= {
        "trainer.v1.separate_async.parameter_sync_step": Mapped(1),
        "actor_rollout_ref.actor.ppo_mini_batch_size": Mapped(tasks, "training.mini_batch_size"),
        # Each copy of the engine requests its own placement group from Ray, so the copies may be on any nodes.
        f"{_ROLLOUT}.nnodes": Mapped(1, "verl.rollout_gpus"),
        f"{_ROLLOUT}.n_gpus_per_node": Mapped(verl.rollout_gpus, "verl.rollout_gpus"),
    }
    if on_cpu(policy):
        found[f"{_ENGINE}.backend"] = Mapped(CPU_WEIGHTS, "policy.device")
        found[f"{_ENGINE}.custom_backend_module"] = Mapped(_CPU_WEIGHTS_MODULE, "policy.device")
    return found


def suggested_for_mode(verl: VerlSettings, policy: PolicySettings) -> Settings:
    """verl's settings that a recipe may override."""
    found: Settings = {}
    if is_asynchronous(verl):
        found["trainer.v1.sampler.max_off_policy_strategy"] = "wait"  # verl's own drops tasks
    if verl.mode == _SEPARATE and not on_cpu(policy):
        found[f"{_ENGINE}.backend"] = "nccl"
    return found
