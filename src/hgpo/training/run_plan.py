"""The lines that a run prints first: model, plan, and notes on settings meant for another size of model."""

from __future__ import annotations

import torch

from hgpo.config import Config, PolicySettings, TrainingSettings, WarmStartSettings

_TINY = 20_000_000  # parameters; language models have more, policies that are trained from scratch here have fewer
_SLOW, _FAST = 1e-5, 2e-4  # learning rates: too small for a tiny policy; so large that a language model forgets
_FAST_IMITATION = 5e-4
_REASONING_TOKENS = 64  # fewest tokens that a thought and an action take


def plan_lines(config: Config, parameters: int, where: str) -> list[str]:
    """Model, plan, and notes on settings that do not suit the model; one line each.

    Args:
        config: settings of the run.
        parameters: parameters of the model.
        where: device of the training, in words; see `on_device`.
    """
    policy, rollout, updates = config.policy, config.rollout, config.training.updates
    about = "at most " if policy.model == "tiny" else ""  # its vocabulary is known after the demonstrations
    adapters = f", of which adapters of rank {policy.lora.rank} are trained" if policy.lora.rank else ""
    episodes = rollout.tasks_per_update * rollout.group_size
    notes = size_notes(parameters, policy, config.training, config.warm_start)
    notes += template_notes(config.agent.template, policy.max_response_tokens)
    return [
        f"Model: {policy.model}, {about}{parameters:,} parameters{adapters}, {where}",
        f"Plan: {updates} updates, each of {rollout.tasks_per_update} tasks with {rollout.group_size} rollouts of at "
        f"most {config.environment.max_steps} steps: up to {episodes * config.environment.max_steps:,} steps",
        *(f"Note: {note}" for note in notes),
    ]


def on_device(device: torch.device) -> str:
    """Where one process trains: "on cpu with 2 threads"."""
    threads = f" with {torch.get_num_threads()} threads" if device.type == "cpu" else ""
    return f"on {device}{threads}"


def size_notes(
    parameters: int, policy: PolicySettings, training: TrainingSettings, start: WarmStartSettings
) -> list[str]:
    """Learning rates that are meant for a model of another size, and the consequence."""
    whole = not policy.lora.rank  # adapters take larger rates
    notes = []
    if parameters < _TINY and training.learning_rate < _SLOW:
        notes.append(
            f"training.learning_rate = {training.learning_rate:g} is a language model's. A tiny policy hardly moves at "
            "it: the recipe quickstart has 5e-4"
        )
    if parameters >= _TINY and whole and training.learning_rate >= _FAST:
        notes.append(
            f"training.learning_rate = {training.learning_rate:g} is a tiny policy's. A language model forgets what it "
            "knew at it: the published recipe has 1e-6, smollm2 4e-5"
        )
    if parameters >= _TINY and whole and start.enabled and start.learning_rate >= _FAST_IMITATION:
        notes.append(
            f"warm_start.learning_rate = {start.learning_rate:g} is a tiny policy's: the recipe smollm2 has 4e-5"
        )
    return notes


def template_notes(template: str, max_response_tokens: int) -> list[str]:
    """A template whose responses are longer than the limit."""
    if not template.endswith("reasoning") or max_response_tokens >= _REASONING_TOKENS:
        return []
    return [
        f"agent.template = {template!r} asks for thoughts, which policy.max_response_tokens = {max_response_tokens} "
        "cuts off: the published recipe has 512"
    ]
