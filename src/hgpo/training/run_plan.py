"""The lines that a run prints first: model, plan, and notes on settings meant for another size of model."""

from __future__ import annotations

import torch

from hgpo.config import Config

_TINY = 20_000_000
"""Parameters: no language model has as few, and no policy that starts from nothing in minutes has more."""
_SLOW, _FAST = 1e-5, 2e-4
"""Learning rates: below the first a tiny policy hardly moves, from the second on a language model forgets its own."""
_FAST_IMITATION = 5e-4
_THOUGHTS = 64
"""Fewest tokens that a thought and an action take."""


def announcement(config: Config, parameters: int, where: str) -> list[str]:
    """Model, plan, and notes on settings that do not suit the model; one line each.

    Args:
        config: settings of the run.
        parameters: parameters of the model.
        where: device of the training, in words; see `on_device`.
    """
    policy, rollout, updates = config.policy, config.rollout, config.training.updates
    about = "at most " if policy.model == "tiny" else ""  # its vocabulary is known once games were demonstrated
    adapters = f", of which adapters of rank {policy.lora.rank} are trained" if policy.lora.rank else ""
    episodes = rollout.tasks_per_update * rollout.group_size
    return [
        f"Model: {policy.model}, {about}{parameters:,} parameters{adapters}, {where}",
        f"Plan: {updates} updates, each of {rollout.tasks_per_update} games played {rollout.group_size} times in at "
        f"most {config.environment.max_steps} steps: up to {episodes * config.environment.max_steps:,} steps",
        *(f"Note: {doubt}" for doubt in doubts(config, parameters)),
    ]


def on_device(device: torch.device) -> str:
    """Where one process trains: "on cpu with 2 threads"."""
    threads = f" with {torch.get_num_threads()} threads" if device.type == "cpu" else ""
    return f"on {device}{threads}"


def doubts(config: Config, parameters: int) -> list[str]:
    """What was meant for a model of another size, and why that matters."""
    policy, training, start = config.policy, config.training, config.warm_start
    whole = not policy.lora.rank  # adapters take larger rates
    found = []
    if parameters < _TINY and training.learning_rate < _SLOW:
        found.append(
            f"training.learning_rate = {training.learning_rate:g} is a language model's. A tiny policy hardly moves at "
            "it: the recipe quickstart has 5e-4"
        )
    if parameters >= _TINY and whole and training.learning_rate >= _FAST:
        found.append(
            f"training.learning_rate = {training.learning_rate:g} is a tiny policy's. A language model forgets what it "
            "knew at it: the published recipe has 1e-6, smollm2 4e-5"
        )
    if parameters >= _TINY and whole and start.enabled and start.learning_rate >= _FAST_IMITATION:
        found.append(
            f"warm_start.learning_rate = {start.learning_rate:g} is a tiny policy's: the recipe smollm2 has 4e-5"
        )
    if config.agent.template.endswith("reasoning") and policy.max_response_tokens < _THOUGHTS:
        found.append(
            f"agent.template = {config.agent.template!r} asks for thoughts, which policy.max_response_tokens = "
            f"{policy.max_response_tokens} cuts off: the published recipe has 512"
        )
    return found
