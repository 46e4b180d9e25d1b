"""The package as a wheel: hgpo finds its environment, template and recipes by the entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hgpo.config import read_config
from hgpo_backoffice import backoffice_suite

PROJECT = Path(__file__).parents[1]
RECIPES = PROJECT / "src" / "hgpo_backoffice" / "recipes"
TASKS = {"train_tasks": 60, "valid_seen_tasks": 10, "valid_unseen_tasks": 10}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables with which Python finds a copy that pip built and installed."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(PROJECT, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--target", str(folder / "installed"), str(folder / "source")]
    subprocess.run(command, check=True)
    return {**os.environ, "PYTHONPATH": str(folder / "installed"), "COLUMNS": "200"}


def python(variables: dict[str, str], *words: str) -> str:
    """What a Python process prints that runs in an empty working folder."""
    folder = Path(variables["PYTHONPATH"]).parent
    done = subprocess.run([sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("model", "agent"), [("tiny", "direct"), ("some/model", "tools")])
def test_env_takes_the_recipes_of_the_package(variables: dict[str, str], model: str, agent: str) -> None:
    words = ["train", "--env", "backoffice", "--dry-run", f"policy.model={model}"]
    settings = tomllib.loads(python(variables, "-m", "hgpo", *words))
    assert settings["environment"]["name"] == "backoffice"
    assert settings["agent"]["name"] == agent
    assert settings["warm_start"]["enabled"] == (model == "tiny")


@pytest.mark.slow
def test_its_names_are_listed_without_importing_it_and_its_parts_found_by_name(variables: dict[str, str]) -> None:
    code = (
        "import sys; from hgpo.agents.prompts import template_names; from hgpo.envs import names; "
        "from hgpo.config.recipes import recipe_names, starters; "
        "print(*template_names(), *names(), *recipe_names(), *starters(), 'hgpo_backoffice' in sys.modules); "
        "from hgpo.agents.prompts import get_template; from hgpo.envs import make; import hgpo_backoffice; "
        "[task] = make('backoffice', train_tasks=1, valid_seen_tasks=0).tasks('train'); "
        "print(type(task.make()).__name__, type(get_template('backoffice-compact')).__name__, hgpo_backoffice.__file__)"
    )
    *listed, imported, environment, template, file = python(variables, "-c", code).split()
    assert {"backoffice-compact", "backoffice", "backoffice-tiny", "backoffice-language-model"} <= set(listed)
    assert imported == "False"
    assert (environment, template) == ("BackofficeEnv", "BackofficeCompactTemplate")
    assert Path(file).is_relative_to(variables["PYTHONPATH"])


@pytest.mark.slow
def test_a_tiny_policy_trains(variables: dict[str, str]) -> None:
    words = ["backoffice-tiny", "--quiet", "policy.tiny.hidden_size=16", "policy.tiny.layers=1", "training.updates=1"]
    words += [f"environment.options.{split}={count}" for split, count in TASKS.items()]
    words += ["policy.tiny.attention_heads=2", "warm_start.demonstrations=20", "warm_start.probe_games=2"]
    words += ["warm_start.max_updates=1", "rollout.tasks_per_update=2", "rollout.group_size=2", "evaluation.games=2"]
    python(variables, "-m", "hgpo", "train", *words)
    assert (Path(variables["PYTHONPATH"]).parent / "runs" / "backoffice-tiny" / "summary.json").exists()


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_recipes_options_are_the_suites(recipe: Path) -> None:
    suite = backoffice_suite(**read_config(recipe).environment.options)
    assert suite.splits == ("train", "valid_seen", "valid_unseen")
