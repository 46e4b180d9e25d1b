"""The 24 published rows: what recipes/verl/README.md says to add to a base recipe gives exactly the published settings.

tests/integration/test_verl_compose.py composes the same rows with verl's own configuration.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from hgpo.config import Config, load_config
from hgpo.config.loading import default_of, leaves
from hgpo.estimators import parse_options
from published_recipes import EVALUATION, FOLDER, ROWS, Row, overrides_of
from unit.recipes.test_shell_lines import shell_lines

ENVIRONMENTS = ("alfworld", "webshop")
ROOT = FOLDER.parents[1]

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
    "training.loss_aggregation": "micro-batch-token-mean",
    "training.entropy_coefficient": 0.001,
    "training.max_gradient_norm": 1.0,
    "training.micro_batch_tokens": 32768,
    "training.recompute_log_probs": True,
    "training.importance_cap": None,
    "policy.precision": "bfloat16",
    "training.checkpoint_every": 40,
    "evaluation.seeds": (123,),
    "evaluation.before": False,
    "evaluation.temperature": 0.4,
    "evaluation.every": 5,
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
        "agent.template": "shop-reasoning",
        "evaluation.split": "validation_256",
    },
}
MICRO_BATCH = {
    ("alfworld", "1.5b"): 16,
    ("alfworld", "7b"): 8,
    ("webshop", "1.5b"): 4,
}  # rows; 7B on WebShop: not known
MINI_BATCH = {"alfworld": 256, "webshop": 64}
MODE = {"alfworld": "mean_std_norm", "webshop": "mean_norm"}
FUSED = {"model": {"use_fused_kernels": True}}  # memory alone
OFFLOAD = {"actor": {"fsdp_config": {"param_offload": True, "optimizer_offload": True}}}
MODEL = {
    "1.5b": {
        "policy.model": "Qwen/Qwen2.5-1.5B-Instruct",
        "verl.gpus_per_node": 2,
        "verl.overrides": {"actor_rollout_ref": FUSED},
    },
    "7b": {
        "policy.model": "Qwen/Qwen2.5-7B-Instruct",
        "verl.gpus_per_node": 4,
        "verl.overrides": {"actor_rollout_ref": FUSED | OFFLOAD},
    },
}
OPTIONS: dict[str, dict[str, Any]] = {
    "hgpo": {"preset": "verl-agent", "weight_type": "length", "length_weight_alpha": 1.0, "base_group": False},
    "gigpo": {"step_advantage_w": 1.0},
    "grpo": {"count": "step"},
}


def said(config: Config) -> dict[str, Any]:
    return {name: value for name, value, _ in leaves(config)}


def with_defaults(config: Config, expected: dict[str, Any]) -> dict[str, Any]:
    """Every setting: what is expected of some, and the default of all others."""
    return {name: default_of(field) for name, _, field in leaves(config)} | expected


def in_full(settings: dict[str, Any]) -> dict[str, Any]:
    """The same with every option of the estimator, so that an option left at its default equals one that is given."""
    options = parse_options(settings["advantage.estimator"], **settings["advantage.options"])
    return settings | {"advantage.options": options}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_the_published_settings_and_defaults_elsewhere(row: Row) -> None:
    config = load_config(row.recipe, overrides_of(row))
    expected = {
        **POLICY,
        **TRAINING,
        **ENVIRONMENT[row.environment],
        **MODEL[row.size],
        "run.name": row.name,
        "agent.history_length": row.k,
        "advantage.estimator": row.estimator,
        "advantage.options": {"mode": MODE[row.environment], **OPTIONS[row.estimator]},
        "training.mini_batch_size": MINI_BATCH[row.environment],
        "training.loss_micro_batch_rows": MICRO_BATCH.get((row.environment, row.size), 4),
    }
    assert in_full(said(config)) == in_full(with_defaults(config, expected))


def test_the_base_recipes_are_rows_themselves() -> None:
    for environment in ENVIRONMENTS:
        assert load_config(FOLDER / f"{environment}.toml").run.name == f"{environment}-1.5b-k2-hgpo"


@pytest.mark.parametrize("page", ["recipes/verl/README.md", "docs/verl.md"])
def test_what_the_page_says_is_evaluated_is_the_last_checkpoint_on_every_task_with_three_seeds(page: str) -> None:
    commands = [shlex.split(line) for line in shell_lines(ROOT / page)]
    trainings = [words[2:] for words in commands if words[:2] == ["hgpo", "train"] and "--dry-run" not in words]
    [*trained], [*evaluated] = (
        [
            load_config(FOLDER.parent / f"{recipe}.toml", [*(word for word in words if "=" in word), "run.engine=verl"])
            for recipe, *words in trainings
            if recipe.startswith("verl/") and (EVALUATION[0] in words) is only
        ]
        for only in (False, True)
    )
    of_last = {
        f"{config.run_directory}/checkpoints/{config.training.updates}": config.agent.history_length
        for config in trained
    }
    assert {config.evaluation.split for config in evaluated} >= {"valid_seen", "valid_unseen"}
    for config in evaluated:
        assert config.evaluation.seeds == (123, 456, 789)
        assert config.evaluation.temperature == 0.4
        assert config.evaluation.games is None
        assert config.evaluation.split != "validation_256"
        assert of_last[config.policy.model] == config.agent.history_length
    [table] = [words for words in commands if words[:2] == ["hgpo", "compare"]]
    assert {f"hgpo={config.run_directory}" for config in evaluated} <= set(table)
