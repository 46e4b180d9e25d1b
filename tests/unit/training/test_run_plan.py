"""What is said before a run begins."""

from __future__ import annotations

import pytest
import torch

from hgpo.config import Config, load_config
from hgpo.config.recipes import starter_recipe
from hgpo.training.run_plan import on_device, plan_lines, summarise_model

TINY, LARGE = 100_000, 135_000_000
CPU = torch.device("cpu")


def notes(config: Config, parameters: int) -> list[str]:
    return plan_lines(config, parameters, "on cpu")[2:]


@pytest.mark.parametrize(
    ("parameters", "overrides", "setting"),
    [
        (TINY, ["training.learning_rate=1e-6"], "training.learning_rate = 1e-06 suits a language model"),
        (LARGE, ["training.learning_rate=5e-4"], "training.learning_rate = 0.0005 suits a tiny policy"),
        (LARGE, ["warm_start.learning_rate=1e-3"], "warm_start.learning_rate = 0.001 suits a tiny policy"),
        (
            LARGE,
            ["agent.template=household-reasoning", "policy.max_response_tokens=12"],
            "policy.max_response_tokens = 12 cuts off",
        ),
    ],
)
def test_what_was_meant_for_another_size_is_noted(parameters: int, overrides: list[str], setting: str) -> None:
    fitting = ["training.learning_rate=5e-5", "warm_start.enabled=true", "warm_start.learning_rate=4e-5"]
    assert notes(load_config(None, fitting), parameters) == []
    [note] = notes(load_config(None, [*fitting, *overrides]), parameters)
    assert setting in note


def test_adapters_take_larger_rates() -> None:
    settings = ["training.learning_rate=1e-3", "policy.lora.rank=8", "warm_start.enabled=true"]
    assert notes(load_config(None, settings), LARGE) == []


@pytest.mark.parametrize("environment", ["alfworld", "webshop"])
@pytest.mark.parametrize(("model", "parameters"), [("tiny", TINY), ("some/model", LARGE)])
def test_the_recipes_of_env_leave_none(environment: str, model: str, parameters: int) -> None:
    config = load_config(starter_recipe(environment, model), [f"policy.model={model}"])
    assert notes(config, parameters) == []


def test_model_device_and_plan_are_printed() -> None:
    config = load_config(starter_recipe("alfworld"), ["training.learning_rate=1e-6"])
    parameters = summarise_model(config.policy).parameters
    model, plan, note = plan_lines(config, parameters, on_device(CPU))
    assert model.startswith(f"Model: tiny, at most {parameters:,} parameters, on cpu with ")
    assert plan.startswith("Plan: 200 updates, each of 16 tasks with 8 rollouts of at most 15 steps: up to 1,920 steps")
    assert note.startswith("Note: training.learning_rate")
