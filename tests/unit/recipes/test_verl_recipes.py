"""The published settings, by environment, model size, K and estimator. tests/integration/test_verl_compose.py composes
the files with verl's own configuration.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hgpo.config import Config, load_config
from hgpo.config.engines import default_of, leaves

FOLDER = Path(__file__).parents[3] / "recipes" / "verl"
TRAININGS = list(itertools.product(("alfworld", "webshop"), ("1.5b", "7b"), (2, 4), ("hgpo", "gigpo", "grpo")))
EVALUATIONS = ("alfworld", "webshop")

POLICY = {"policy.device": "cuda", "policy.max_prompt_tokens": 4096, "policy.max_response_tokens": 512}
TRAINING = {
    "rollout.tasks_per_update": 16,
    "rollout.group_size": 8,
    "rollout.temperature": 1.0,
    "rollout.reward": "won",
    "rollout.reward_scale": 10.0,
    "rollout.invalid_action_penalty": 0.1,
    "advantage.gamma": 0.95,
    "training.updates": 160,
    "training.learning_rate": 1e-6,
    "training.weight_decay": 0.01,
    "training.epochs": 1,
    "training.clip_low": 0.2,
    "training.clip_high": 0.2,
    "training.dual_clip": 3.0,
    "training.kl_coefficient": 0.01,
    "training.entropy_coefficient": 0.001,
    "training.max_gradient_norm": 1.0,
    "training.micro_batch_tokens": 32768,
    "training.recompute_log_probs": True,
    "training.importance_cap": None,
    "training.precision": "bfloat16",
    "training.checkpoint_every": 40,
    "evaluation.seeds": (123,),
    "evaluation.temperature": 0.4,
    "evaluation.every": 5,
    "verl.overrides": {"actor_rollout_ref": {"model": {"use_fused_kernels": True}}},  # memory alone
}
ENVIRONMENT: dict[str, dict[str, Any]] = {
    "alfworld": {
        "environment.name": "alfworld",
        "environment.max_steps": 50,
        "environment.options": {"data_dir": "$ALFWORLD_DATA"},
        "agent.template": "household-reasoning",
        "evaluation.split": "valid_seen",
    },
    "webshop": {
        "environment.name": "webshop",
        "environment.max_steps": 30,
        "environment.options": {"data_dir": "$WEBSHOP_DATA", "split_scheme": "verl-agent"},
        "agent.template": "reasoning",
        "evaluation.split": "validation",
    },
}
MINI_BATCH = {"alfworld": 256, "webshop": 64}
MODE = {"alfworld": "mean_std_norm", "webshop": "mean_norm"}
MODEL = {
    "1.5b": {"policy.model": "Qwen/Qwen2.5-1.5B-Instruct", "verl.gpus_per_node": 2},
    "7b": {"policy.model": "Qwen/Qwen2.5-7B-Instruct", "verl.gpus_per_node": 4},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "hgpo": {"preset": "verl-agent", "weight_type": "length", "length_weight_alpha": 1.0, "base_group": False},
    "gigpo": {"step_advantage_w": 1.0},
    "grpo": {"count": "step"},
}
NAME = {"hgpo": "k{}_hgpo_length_alpha1.0_baseGroup_False", "gigpo": "k{}_gigpo", "grpo": "k{}_grpo"}


def said(config: Config) -> dict[str, Any]:
    return {name: value for name, value, _ in leaves(config)}


def with_defaults(config: Config, expected: dict[str, Any]) -> dict[str, Any]:
    """Every setting: what is expected of some, and the default of all others."""
    return {name: default_of(field) for name, _, field in leaves(config)} | expected


@pytest.mark.parametrize(("environment", "size", "k", "estimator"), TRAININGS)
def test_a_recipe_says_what_is_published_and_leaves_the_rest(
    environment: str, size: str, k: int, estimator: str
) -> None:
    config = load_config(FOLDER / f"{environment}-{size}-k{k}-{estimator}.toml")
    assert said(config) == with_defaults(
        config,
        {
            **POLICY,
            **TRAINING,
            **ENVIRONMENT[environment],
            **MODEL[size],
            "run.name": NAME[estimator].format(k),
            "run.directory": f"runs/{environment}-qwen2.5-{size}",
            "agent.history_length": k,
            "advantage.estimator": estimator,
            "advantage.options": {"mode": MODE[environment], **OPTIONS[estimator]},
            "training.mini_batch_size": MINI_BATCH[environment],
        },
    )


@pytest.mark.parametrize("environment", EVALUATIONS)
def test_an_evaluation_plays_three_seeds(environment: str) -> None:
    config = load_config(FOLDER / f"evaluate-{environment}.toml")
    assert said(config) == with_defaults(
        config,
        {
            **POLICY,
            **ENVIRONMENT[environment],
            **MODEL["1.5b"],
            "run.name": f"evaluate-{environment}",
            "run.engine": "verl",
            "agent.history_length": 2,
            "evaluation.temperature": 0.4,
            "evaluation.seeds": (123, 456, 789),
            "verl.evaluate_only": True,
        },
    )


def test_there_is_no_other_recipe_and_each_is_in_the_table() -> None:
    expected = {f"{environment}-{size}-k{k}-{estimator}.toml" for environment, size, k, estimator in TRAININGS}
    expected |= {f"evaluate-{environment}.toml" for environment in EVALUATIONS}
    assert {path.name for path in FOLDER.glob("*.toml")} == expected
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(expected) if f"({name})" not in table] == []
